"""Every query of the dashboards for Prometheus on a real one, and the alert rules by promtool, fed by the product."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from support.grafana_queries import METRIC_OF, SELECTED, interpolate, label_values, prometheus, promql, promql_range
from support.grafana_system import MINUTES, STEP_MS, STEPS, System
from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink
from tallystream_dashboards.grafana import Settings, Thresholds, resources
from tallystream_dashboards.grafana.alerts.prometheus import alert_name
from tallystream_dashboards.grafana.alerts.rules import RULES
from tallystream_dashboards.grafana.generate import files

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tallystream_aggregator.sinks.base import Point
    from tallystream_dashboards.grafana.alerts.rules import Rule

pytestmark = pytest.mark.integration

LIMITS = Thresholds(stopped_minutes=MINUTES)
SETTINGS = Settings(flavour="prometheus", thresholds=LIMITS)
BOARDS = resources(SETTINGS).dashboards

NOTICED = {"aggregator-stuck": "aggregator-down"}
"""Troubles that have no rule of their own, and the rule that has to notice them."""
WATCHED = re.compile(
    r"(?!tallystream_batch_dur)\w+_(total|start){(?!app=\"tallystream)|tallystream_(living_instances|group_|lag_|last_check|ready)|kafka_.*max_lag_s"
)
FIRED: dict[str, tuple[dict[str, str], str]] = {
    "instance-silent": ({"app": "orders"}, "1"),
    "sum-stopped": ({"app": "orders", "metric": "records_processed"}, "1"),
    "lag-status": ({"group": "billing", "status": "ERR"}, "1"),
    "lag-seconds": ({"group": "billing"}, "452"),
    "sink-behind": ({"group": "tallystream-shipper"}, "420"),
    "dead-letters": ({}, "4"),
    "processed-twice": ({"app": "orders", "metric": "records_processed"}, "50"),
    "aggregator-down": ({}, "1"),
    "collector-down": ({}, "1"),
    "clock-skew": ({"group": "billing"}, "37"),
}
"""What each rule's alert says on its trouble: its labels, and the number measured."""


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    """Prometheus and promtool, of Debian's package."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip("no prometheus on the PATH: on Debian `apt-get install prometheus` brings it and promtool")


def system(end_ms: int, folder: Path, trouble: str = "", without: str = "") -> System:
    """Return a system whose sums, those of the app `without` left out, are exposed as the shipper's sink does it."""
    sink = PrometheusSink("127.0.0.1", 0)

    def expose(points: Sequence[Point]) -> str:
        sink.write([one for one in points if one.tags["app"] != without])
        sink.flush()
        return sink.metrics().text

    return System(end_ms, folder, trouble, expose)


class Filled:
    """A Prometheus that has scraped a system until `end_ms`."""

    def __init__(self, url: str, end_ms: int) -> None:
        self.url, self.end_ms = url, end_ms

    def put_in(self, text: str, panel: str = "") -> str:
        """Return a query with what a person has chosen."""
        metric = METRIC_OF.get(panel, "records.processed").replace(".", "_")
        chosen = SELECTED | {"metric": metric, "group": ".+", "topic": ".+"}
        return interpolate(text, "prometheus", chosen, start_ms=0, end_ms=self.end_ms)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A system in which all is well."""
    folder, end_ms = tmp_path_factory.mktemp("prometheus"), int(time.time() * 1000)
    with prometheus(folder, system(end_ms, folder).scrapes) as url:
        yield Filled(url, end_ms)


PANELS = [
    pytest.param(one, id=f"{model['title']}-{one['title']}".replace(" ", "_"))
    for model in BOARDS.values()
    for one in model["panels"]
    if one["type"] != "row"
]


@pytest.mark.parametrize("panel", PANELS)
def test_every_panel_shows_something(healthy: Filled, panel: dict[str, Any]) -> None:
    """Each query of each panel has an answer, with the labels by which its lines are called."""
    for target in panel["targets"]:
        text = healthy.put_in(target["expr"], panel["title"])
        if target["instant"]:
            rows = promql(healthy.url, text, at_ms=healthy.end_ms)
        else:
            rows = promql_range(
                healthy.url, text, start_ms=healthy.end_ms - STEPS * STEP_MS // 2, end_ms=healthy.end_ms
            )
        assert rows, text
        assert all(set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= row.keys() for row in rows), (text, rows[0])


def test_every_variable_has_values(healthy: Filled) -> None:
    """What can be chosen at the top of a dashboard is found, and what must be there is among it."""
    wanted = {"app": "orders", "metric": "records_processed", "group": "billing", "topic": "orders"}
    for model in BOARDS.values():
        for variable in model["templating"]["list"]:
            if variable["type"] == "query":
                found = label_values(healthy.url, healthy.put_in(variable["query"]["query"]), at_ms=healthy.end_ms)
                if variable["regex"]:
                    pattern = re.compile(variable["regex"].strip("/"))
                    found = {match[1] for value in found if (match := pattern.search(value))}
                assert wanted[variable["name"]] in found, (variable, found)


def test_sums_and_rates_are_exact(healthy: Filled) -> None:
    """The sum is what was counted, and its rate what was counted by the seconds that it took."""
    made = {
        one["title"]: one["targets"][0]["expr"] for one in BOARDS["tallystream-metric"]["panels"] if "targets" in one
    }
    values = {
        title: promql(healthy.url, healthy.put_in(made[title]), at_ms=healthy.end_ms)[0]["value"]
        for title in ("Sum", "Rate", "Processed twice")
    }
    assert values["Sum"] == STEPS * 60
    assert values["Rate"] == pytest.approx(60 / (STEP_MS / 1000), rel=0.01)
    assert values["Processed twice"] == 0


def test_the_rules_file_is_valid(tmp_path: Path) -> None:
    """Promtool finds as many rules as there are, and no fault in them."""
    (tmp_path / "rules.yaml").write_text(files(SETTINGS)["rules/tallystream.rules.yaml"])
    done = subprocess.run(
        ["promtool", "check", "rules", "rules.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, f"SUCCESS: {len(RULES)} rules found" in done.stdout) == (0, True), (
        done.stdout + done.stderr
    )


def test_rules_fire_on_their_troubles_and_on_nothing_else(tmp_path: Path) -> None:
    """Promtool: each rule's alert on the data made for it, with its labels and texts; none while all is well."""
    (tmp_path / "rules.yaml").write_text(files(SETTINGS)["rules/tallystream.rules.yaml"])
    end_ms = int(time.time() * 1000)
    tests = [
        {
            "interval": f"{STEP_MS // 1000}s",
            "name": trouble or "all is well",
            "input_series": series(system(end_ms, tmp_path, trouble, without="tallystream").scrapes),
            "alert_rule_test": [
                {
                    "eval_time": f"{(STEPS - 1) * STEP_MS // 1000}s",
                    "alertname": alert_name(rule),
                    "exp_alerts": [alert(rule)] if trouble else [],
                }
                for rule in RULES
                if NOTICED.get(trouble, trouble) in ("", rule.slug)
            ],
        }
        for trouble in ("", *(rule.slug for rule in RULES), *NOTICED)
    ]
    told = {"rule_files": ["rules.yaml"], "evaluation_interval": f"{STEP_MS // 1000}s", "tests": tests}
    (tmp_path / "test.yaml").write_text(yaml.dump(told, Dumper=yaml.CSafeDumper))
    done = subprocess.run(
        ["promtool", "test", "rules", "test.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def alert(rule: Rule) -> dict[str, Any]:
    """Return the alert that a rule has to send."""
    labels, value = FIRED[rule.slug]

    def said(text: str) -> str:
        text = rule.text(text, LIMITS, value=value, label="<NAME>")
        return re.sub(r"<(\w+)>", lambda match: labels[match[1]], text)

    return {
        "exp_labels": {"severity": rule.severity, "owner": "tallystream", **labels},
        "exp_annotations": {
            "summary": said(rule.summary),
            "description": f"{said(rule.reason)} What to do: {said(rule.action)}",
            "runbook_url": f"docs/runbook.md#{rule.slug}",
        },
    }


def series(scrapes: list[tuple[int, str]]) -> list[dict[str, str]]:
    """Return scrapes as promtool's series, those alone that a rule may look at."""
    found: dict[str, list[str]] = {}
    for number, (_, text) in enumerate(scrapes):
        for line in text.splitlines():
            if WATCHED.match(line):
                name, _, value = line.rpartition(" ")
                values = found.setdefault(name, [])
                values += ["_"] * (number - len(values)) + [value]
    # What is not scraped any more is stale, as after a failed scrape.
    return [
        {"series": name, "values": " ".join([*values, *(["stale"] if len(values) < len(scrapes) else [])])}
        for name, values in found.items()
    ]
