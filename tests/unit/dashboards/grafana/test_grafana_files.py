"""The generated dashboards and rules: their files, and their models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import fields
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard
from typer.testing import CliRunner

from support.grafana_queries import prometheus_rules, rules, variables_of
from tallystream.errors import ConfigError
from tallystream_cli import main
from tallystream_dashboards.grafana.generate import dashboards, files, rule_group
from tallystream_dashboards.grafana.settings import FLAVOURS, Flavour, Settings, Thresholds

GENERATED = Path(__file__).parents[4] / "dashboards" / "generated"

DASHBOARDS = GENERATED.parent / "tallystream_dashboards" / "grafana" / "files"

URLS = {"flux": "$INFLUXDB_URL", "prometheus": "$PROMETHEUS_URL"}
"""The stores' URLs in the committed files: Grafana in Compose has them in its environment."""


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_committed_files_are_what_the_command_writes(flavour: Flavour, tmp_path: Path) -> None:
    """`dashboards generate --flavour F --datasource-url '$…' --out dashboards/generated/F` changes no file."""
    result = CliRunner().invoke(
        main.app,
        ["dashboards", "generate", "--flavour", flavour, "--datasource-url", URLS[flavour], "--out", str(tmp_path)],
        env={"INFLUXDB_ORG": None, "INFLUXDB_BUCKET": None},
        catch_exceptions=False,
    )
    assert result.exit_code == 0
    written = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    folder = GENERATED / flavour
    committed = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}
    committed |= {f"dashboards/{path.name}": path.read_text() for path in (DASHBOARDS / flavour).iterdir()}
    assert written == committed
    assert set(result.stdout.split()) == {str(tmp_path / name) for name in committed}


def test_a_folder_with_special_characters() -> None:
    """A dollar is doubled where Grafana reads it as the name of a variable, and quotes are escaped."""
    settings = Settings(folder_title='Cash$Flow "A"', dashboards_path="/boards")
    (provider,) = yaml.safe_load(files(settings)["provisioning/dashboards/tallystream.yaml"])["providers"]
    assert (provider["folder"], provider["folderUid"]) == ('Cash$$Flow "A"', "tallystream-folder")
    assert provider["options"] == {"path": "/boards"}
    assert dashboards(settings)["tallystream-lag"]["title"] == 'Cash$Flow "A" Lag'


@pytest.mark.parametrize(
    ("bucket", "literal"),
    [("größe", '"größe"'), ("a${b}", '"a\\${b}"'), ("$a", '"$a"'), ('a"b\\', '"a\\"b\\\\"'), ("a\tb", '"a\\x09b"')],
)
def test_rules_and_dashboards_in_flux_name_any_bucket(bucket: str, literal: str) -> None:
    """Flux has other escapes than JSON, none for other letters, and `${` would begin an interpolation."""
    settings = Settings(bucket=bucket)
    assert {name for rule in rules(settings) for name in re.findall(r"from\(bucket: (.*)\)\n", rule.query)} == {literal}
    for model in dashboards(settings).values():
        (variable,) = [one for one in model["templating"]["list"] if one["name"] == "bucket"]
        assert variable["current"]["value"] == bucket


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_no_file_has_a_secret_or_a_host(flavour: Flavour) -> None:
    """The files name only localhost, and references to environment variables instead of secrets."""
    for text in files(Settings(flavour=flavour)).values():
        assert set(re.findall(r"https?://[^\s\"/]+", text)) <= {"http://localhost:8086", "http://localhost:9090"}
        assert "token:" not in text.replace("token: $INFLUXDB_TOKEN", "")


def test_every_threshold_is_in_a_file() -> None:
    """No option is without effect."""
    texts = "".join(path.read_text() for path in (DASHBOARDS / "provisioning").iterdir())
    assert all(f"@{{{one.name}" in texts for one in fields(Thresholds))


def test_thresholds_are_in_the_rules_of_grafana_and_prometheus(tmp_path: Path) -> None:
    """The rules compare with the number of the option, and their texts name it."""
    options = ["--threshold", "lag-seconds=77", "--flavour", "prometheus", "--out", str(tmp_path)]
    assert CliRunner().invoke(main.app, ["dashboards", "generate", *options]).exit_code == 0
    (rules,) = yaml.safe_load((tmp_path / "rules/tallystream.rules.yaml").read_text())["groups"]
    (rule,) = [one for one in rules["rules"] if one["alert"] == "TallystreamLagTooOld"]
    assert rule["expr"].endswith(" > 77")
    assert "more than 77 s behind" in rule["annotations"]["description"]
    (group,) = yaml.safe_load((tmp_path / "provisioning/alerting/tallystream.yaml").read_text())["groups"]
    (one,) = [one for one in group["rules"] if one["uid"] == "tallystream-lag-seconds"]
    assert one["data"][2]["model"]["conditions"][0]["evaluator"] == {"type": "gt", "params": [77]}


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"flavour": "sql"}, "--flavour: 'sql' can't be used; give flux or prometheus."),
    ({"uid_prefix": "a b"}, "--uid-prefix: 'a b' can't be used; give 1 to 15 letters, digits, _ or -."),
    ({"uid_prefix": "x" * 16}, "--uid-prefix"),
    ({"folder_title": " "}, "--folder"),
    ({"bucket": ""}, "--bucket is not set; give the name that it has in InfluxDB."),
    ({"org": ""}, "--org"),
    ({"datasource_url": "influxdb:8086"}, "--datasource-url"),
    ({"datasource_url": "http://influxdb:0"}, "--datasource-url"),
]


@pytest.mark.parametrize(("given", "message"), INVALID)
def test_an_invalid_setting_is_refused(given: dict[str, Any], message: str) -> None:
    """The error names the option, the value and the remedy."""
    with pytest.raises(ConfigError) as raised:
        Settings(**given)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    "given", [{"lag_seconds": -1}, {"aggregator_seconds": 29}, {"stopped_minutes": 0}, {"dead_letters": 2**31}]
)
def test_thresholds_have_bounds(given: dict[str, Any]) -> None:
    """The error of a threshold out of bounds names it."""
    (name,) = given
    with pytest.raises(ConfigError, match=f"--threshold: '{name.replace('_', '-')}="):
        Thresholds(**given)


MODELS = [
    pytest.param(flavour, model, id=f"{flavour}-{uid}")
    for flavour in FLAVOURS
    for uid, model in dashboards(Settings(flavour=flavour)).items()
]
NOT_IN_THE_MODELS = {
    "/templating/list/definition",  # Grafana shows it in its list of variables
    "/annotations/list/target/query",  # the data source's; the models have no type for it
    "/annotations/list/target/refId",
    "/annotations/list/mappings",
    "/panels/fieldConfig/defaults/custom/spanNulls",  # of state timelines: Grafana's "Connect null values"
}


def strings(value: Any) -> Iterator[str]:
    """Yield every string in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from strings(one)


def losses(given: Any, read: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of values in `given` that `read` lacks or has with another value."""
    if isinstance(given, dict):
        for name, value in given.items():
            if isinstance(read, dict) and name in read:
                yield from losses(value, read[name], f"{path}/{name}")
            else:
                yield f"{path}/{name}"
    elif isinstance(given, list):
        if not isinstance(read, list) or len(read) != len(given):
            yield path
        else:
            for one, other in zip(given, read, strict=True):
                yield from losses(one, other, path)
    elif given != read:
        yield f"{path}: {given!r} is read as {read!r}"


@pytest.mark.parametrize(("flavour", "model"), MODELS)
def test_the_dashboards_are_valid_for_grafanas_models(flavour: Flavour, model: dict[str, Any]) -> None:
    """The Grafana Foundation SDK reads a dashboard and writes it again without a loss."""
    plugins.register_default_plugins()
    read = json.loads(json.dumps(Dashboard.from_json(json.loads(json.dumps(model))), cls=JSONEncoder))
    assert set(losses(model, read)) <= NOT_IN_THE_MODELS


@pytest.mark.parametrize(("flavour", "model"), MODELS)
def test_panels_have_unique_ids_and_titles_and_do_not_overlap(flavour: Flavour, model: dict[str, Any]) -> None:
    """No two panels share an ID, a title or a cell of the grid, and none exceeds its 24 columns."""
    panels = model["panels"]
    assert len({one["id"] for one in panels}) == len(panels)
    assert len({one["title"] for one in panels if one["type"] != "row"}) == sum(one["type"] != "row" for one in panels)
    positions = [one["gridPos"] for one in panels]
    assert all(one["x"] + one["w"] <= 24 and one["w"] > 0 and one["h"] > 0 for one in positions)
    for one, other in combinations(positions, 2):
        apart = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        apart |= one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert apart, (one, other)


@pytest.mark.parametrize(("flavour", "model"), MODELS)
def test_every_used_variable_is_defined_and_every_defined_one_is_used(flavour: Flavour, model: dict[str, Any]) -> None:
    """A variable is defined before the variables whose queries use it."""
    variables = model["templating"]["list"]
    defined: set[str] = set()
    for one in variables:
        assert variables_of(json.dumps([one.get("query", ""), one.get("datasource", "")])) <= defined, one["name"]
        defined.add(one["name"])
    querying = [one for panel in model["panels"] for one in [panel, *panel.get("targets", [])]]
    parts = [text for one in querying for part in ("datasource", "query", "expr") for text in strings(one.get(part))]
    used = {name for text in [*parts, *strings(model["annotations"])] for name in variables_of(text)}
    assert used <= defined
    used_by_variables = {name for one in variables for name in variables_of(json.dumps(one.get("query", "")))}
    assert defined <= used | used_by_variables | {"datasource"}


@pytest.mark.parametrize(("flavour", "model"), MODELS)
def test_every_panel_has_help_texts_and_named_lines(flavour: Flavour, model: dict[str, Any]) -> None:
    """Each panel has a unit, a description, and a text for missing data; its lines have names."""
    for panel in model["panels"]:
        if panel["type"] == "row":
            continue
        defaults = panel["fieldConfig"]["defaults"]
        assert defaults["unit"]
        assert panel["description"].endswith(".")
        assert re.search(r"[.?]$", defaults["noValue"])
        assert panel["targets"]
        named = {one["matcher"]["options"] for one in panel["fieldConfig"]["overrides"]}
        for target in panel["targets"]:
            if panel["type"] != "table":
                assert target.get("legendFormat", "__auto") != "__auto" or target["refId"] in named


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_links_lead_to_generated_dashboards(flavour: Flavour) -> None:
    """Each dashboard links to every other one, and links in panels lead to one of them."""
    models = dashboards(Settings(flavour=flavour, uid_prefix="p"))
    for uid, model in models.items():
        assert {one["url"].removeprefix("/d/") for one in model["links"]} == models.keys() - {uid}
        for text in strings(model["panels"]):
            for target in re.findall(r"/d/([^?/]+)", text):
                assert target in models


PANELS = {
    "instance-silent": "Living instances",
    "sum-stopped": "Rate",
    "lag-status": "Groups",
    "lag-seconds": "Age of the oldest unconsumed record",
    "sink-behind": "Age of what is not in the store",
    "dead-letters": "Dead letters",
    "processed-twice": "Processed twice",
    "aggregator-down": "Age of what is published",
    "collector-down": "Rounds of the collector",
    "records-lost": "Sent and processed",
}
"""The rules, in the order of the runbook, and the title of the panel that shows what each of them measures."""


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_every_rule_links_to_its_panel_and_its_section_of_the_runbook(flavour: Flavour) -> None:
    """The panel with the ID in the rule has the title; the end of the uid is the anchor."""
    settings = Settings(flavour=flavour, runbook_url="https://wiki/runbook")
    models = dashboards(settings)
    found = rules(settings)
    assert [rule.slug for rule in found] == list(PANELS)
    for rule in found:
        panels = {panel["id"]: panel["title"] for panel in models[rule.content["dashboardUid"]]["panels"]}
        assert panels[rule.content["panelId"]] == PANELS[rule.slug]
        assert rule.content["annotations"]["runbook_url"] == f"https://wiki/runbook#{rule.slug}"


def test_the_rules_of_all_files_say_the_same() -> None:
    """Severity, duration and texts of a rule are those of Grafana for both stores, and of Prometheus."""

    def said(rule: dict[str, Any], title: str) -> Any:
        number = re.compile(r"printf \"%.0f\" [$.\w]+")
        return (
            title,
            rule["for"],
            rule["labels"],
            number.sub("value", json.dumps(rule["annotations"]).replace("\\", "")),
        )

    flux, prometheus = (
        {rule.slug: said(rule.content, rule.content["title"].title().replace(" ", "")) for rule in rules(settings)}
        for settings in (Settings(), Settings(flavour="prometheus"))
    )
    for slug, rule in prometheus_rules(Settings(flavour="prometheus")).items():
        assert flux[slug] == prometheus[slug] == said(rule, rule["alert"].removeprefix("Tallystream"))


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_no_uid_exceeds_grafanas_limit(flavour: Flavour) -> None:
    """With the longest valid prefix, no uid has more than 40 characters."""
    settings = Settings(flavour=flavour, uid_prefix="x" * 15)
    uids = [settings.source_uid, *dashboards(settings), *(rule["uid"] for rule in rule_group(settings)["rules"])]
    assert all(uid.startswith("x" * 15) and len(uid) <= 40 for uid in uids)


def test_only_counters_are_processed_twice() -> None:
    """A meter may have the name of a counter with positions. It is another metric, and neither language adds it."""
    for flavour in FLAVOURS:
        (rule,) = [rule for rule in rules(Settings(flavour=flavour)) if rule.slug == "processed-twice"]
        assert re.search(r'metric_type ?==? ?"counter"', rule.query)
        assert "meter" not in rule.query
