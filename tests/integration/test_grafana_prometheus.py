"""Every query of the dashboards on a real Prometheus, and the alert rules in promtool, with the product's metrics."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from support import images
from support.grafana_queries import (
    METRIC_OF,
    SELECTED,
    interpolate,
    label_values,
    prometheus,
    prometheus_rules,
    promql,
    promql_range,
)
from support.grafana_system import MINUTES, STEP_MS, STEPS, System
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink
from tallystream_dashboards.grafana.generate import dashboards, files
from tallystream_dashboards.grafana.settings import Settings, Thresholds

pytestmark = pytest.mark.integration

LIMITS = Thresholds(stopped_minutes=MINUTES)
SETTINGS = Settings(flavour="prometheus", thresholds=LIMITS)
BOARDS = dashboards(SETTINGS)
RULES = prometheus_rules(SETTINGS)

RULE_OF_FAULT = {"aggregator-stuck": "aggregator-down"}
"""Faults without a rule of their own, and the rule that must fire."""
WATCHED = re.compile(
    r"(?!tallystream_epoch_dur)\w+_(total|start){(?!app=\"tallystream)|tallystream_((living|silent)_instances|group_|lag_|published_age|ready|records)|kafka_.*max_lag_s"
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
    "records-lost": ({"app": "orders", "metric": "records.processed"}, "7"),
}
"""The alert of each rule on its fault: its labels, and the measured number."""


@pytest.fixture(scope="module", autouse=True)
def programs() -> None:
    """Skip the tests if Prometheus and promtool are not installed."""
    if shutil.which("prometheus") is None or shutil.which("promtool") is None:
        pytest.skip("no prometheus or promtool on the PATH: on Debian, run `apt-get install prometheus`")


def system(end_ms: int, fault: str = "", without: str = "") -> System:
    """Return a system whose sums the shipper's sink exposes, except those of the app `without`."""
    sink = PrometheusSink("127.0.0.1", 0)

    def expose(points: Sequence[Point]) -> str:
        sink.write([one for one in points if one.tags["app"] != without])
        sink.caught_up(time.monotonic())
        return sink.metrics().text

    return System(end_ms, fault, expose)


class Filled:
    """A Prometheus that has scraped a system until `end_ms`."""

    def __init__(self, url: str, end_ms: int) -> None:
        self.url, self.end_ms = url, end_ms

    def interpolate(self, text: str, panel: str = "") -> str:
        """Return a query with selected variables."""
        metric = METRIC_OF.get(panel, "records.processed").replace(".", "_")
        selected = SELECTED | {"metric": metric, "group": ".+", "topic": ".+"}
        return interpolate(text, "prometheus", selected, start_ms=0, end_ms=self.end_ms)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A Prometheus that scraped a system without a fault."""
    folder, end_ms = tmp_path_factory.mktemp("prometheus"), int(time.time() * 1000)
    with prometheus(folder, system(end_ms).scrapes) as url:
        yield Filled(url, end_ms)


PANELS = [
    pytest.param(one, id=f"{model['title']}-{one['title']}".replace(" ", "_"))
    for model in BOARDS.values()
    for one in model["panels"]
    if one["type"] != "row"
]


@pytest.mark.parametrize("panel", PANELS)
def test_every_panel_has_data(healthy: Filled, panel: dict[str, Any]) -> None:
    """Each query of each panel returns samples, with the labels that name its lines."""
    for target in panel["targets"]:
        text = healthy.interpolate(target["expr"], panel["title"])
        if target["instant"]:
            rows = promql(healthy.url, text, at_ms=healthy.end_ms)
        else:
            rows = promql_range(
                healthy.url, text, start_ms=healthy.end_ms - STEPS * STEP_MS // 2, end_ms=healthy.end_ms
            )
        assert rows, text
        assert all(set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= row.keys() for row in rows), (text, rows[0])


def test_every_variable_has_values(healthy: Filled) -> None:
    """The query of each variable returns the values that the system exposed."""
    expected = {"app": "orders", "metric": "records_processed", "group": "billing", "topic": "orders"}
    for model in BOARDS.values():
        for variable in model["templating"]["list"]:
            if variable["type"] == "query":
                found = label_values(healthy.url, healthy.interpolate(variable["query"]["query"]), at_ms=healthy.end_ms)
                if variable["regex"]:
                    pattern = re.compile(variable["regex"].strip("/"))
                    found = {match[1] for value in found if (match := pattern.search(value))}
                assert expected[variable["name"]] in found, (variable, found)


def test_sums_and_rates_are_exact(healthy: Filled) -> None:
    """The sum is the count, and the rate is the count divided by the seconds."""
    queries = {
        one["title"]: one["targets"][0]["expr"] for one in BOARDS["tallystream-metric"]["panels"] if "targets" in one
    }
    values = {
        title: promql(healthy.url, healthy.interpolate(queries[title]), at_ms=healthy.end_ms)[0]["value"]
        for title in ("Sum", "Rate", "Processed twice")
    }
    assert values["Sum"] == STEPS * 60
    assert values["Rate"] == pytest.approx(60 / (STEP_MS / 1000), rel=0.01)
    assert values["Processed twice"] == 0


def test_the_rules_file_is_valid(tmp_path: Path) -> None:
    """Promtool accepts the file and finds every rule in it."""
    (tmp_path / "rules.yaml").write_text(files(SETTINGS)["rules/tallystream.rules.yaml"])
    result = subprocess.run(
        ["promtool", "check", "rules", "rules.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (result.returncode, f"SUCCESS: {len(RULES)} rules found" in result.stdout) == (0, True), (
        result.stdout + result.stderr
    )


def test_promtool_accepts_the_configuration_of_compose(tmp_path: Path) -> None:
    """Prometheus' own check finds no error in it, and in the rules that the service mounts."""
    images.init_env(tmp_path)
    service = images.resolved(tmp_path / ".env")["services"]["prometheus"]
    text = (images.COMPOSE / "prometheus" / "prometheus.yaml").read_text(encoding="utf-8")
    for one in service["volumes"]:
        if one["type"] == "bind":
            text = text.replace(one["target"], one["source"])
    (tmp_path / "prometheus.yaml").write_text(text, encoding="utf-8")
    command = ["promtool", "check", "config", tmp_path / "prometheus.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert re.search(r"SUCCESS: \d+ rules found", done.stdout)


def test_rules_fire_on_their_faults_only(tmp_path: Path) -> None:
    """In promtool, each rule fires on its fault, with its labels and texts; none fires without a fault."""
    (tmp_path / "rules.yaml").write_text(files(SETTINGS)["rules/tallystream.rules.yaml"])
    end_ms = int(time.time() * 1000)
    tests = [
        {
            "interval": f"{STEP_MS // 1000}s",
            "name": fault or "no fault",
            "input_series": series(system(end_ms, fault, without="tallystream").scrapes),
            "alert_rule_test": [
                {
                    "eval_time": f"{(STEPS - 1) * STEP_MS // 1000}s",
                    "alertname": rule["alert"],
                    "exp_alerts": [alert(slug, rule)] if fault else [],
                }
                for slug, rule in RULES.items()
                if RULE_OF_FAULT.get(fault, fault) in ("", slug)
            ],
        }
        for fault in ("", *RULES, *RULE_OF_FAULT)
    ]
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": f"{STEP_MS // 1000}s", "tests": tests}
    (tmp_path / "test.yaml").write_text(yaml.dump(content, Dumper=yaml.CSafeDumper))
    result = subprocess.run(
        ["promtool", "test", "rules", "test.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def alert(slug: str, rule: dict[str, Any]) -> dict[str, Any]:
    """Return the alert that a rule must send."""
    labels, value = FIRED[slug]

    def filled(text: str) -> str:
        text = text.replace('{{ printf "%.0f" $value }}', value)
        return re.sub(r"{{ \$labels\.(\w+) }}", lambda match: labels[match[1]], text)

    return {
        "exp_labels": rule["labels"] | labels,
        "exp_annotations": {name: filled(text) for name, text in rule["annotations"].items()},
    }


def series(scrapes: list[tuple[int, str]]) -> list[dict[str, str]]:
    """Return scrapes as promtool's series, without those that no rule reads."""
    found: dict[str, list[str]] = {}
    for number, (_, text) in enumerate(scrapes):
        for line in text.splitlines():
            if WATCHED.match(line):
                name, _, value = line.rpartition(" ")
                values = found.setdefault(name, [])
                values += ["_"] * (number - len(values)) + [value]
    # A series that is no longer scraped is stale, as after a failed scrape.
    return [
        {"series": name, "values": " ".join([*values, *(["stale"] if len(values) < len(scrapes) else [])])}
        for name, values in found.items()
    ]
