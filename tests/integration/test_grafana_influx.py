"""Every query of the dashboards and alert rules for InfluxDB, asked of a real one with what the product writes."""

from __future__ import annotations

import re
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from support.grafana import CHOSEN, METRIC_OF, put_in
from support.grafana_stores import flux, influxql
from support.grafana_system import MINUTES, ODD, STEP_MS, STEPS, System
from support.stores import influx_bucket, write
from tallystream_aggregator.sinks.base import INSTANCE_PREFIX, Point
from tallystream_dashboards.grafana import Settings, Thresholds, resources
from tallystream_dashboards.grafana.alerts.flux import queries
from tallystream_dashboards.grafana.alerts.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.influx import Influx
    from tallystream_aggregator.sinks.stores import StoreSettings

pytestmark = pytest.mark.integration

ASK = {"flux": flux, "influxql": influxql}
LIMITS = Thresholds(stopped_minutes=MINUTES)


class Filled:
    """A bucket with a system's points, the last of which are of `end_ms`."""

    def __init__(self, store: StoreSettings, end_ms: int) -> None:
        self.store, self.end_ms = store, end_ms

    def ask(self, flavour: str, text: str, panel: str = "", metric: str = "records.processed") -> list[dict[str, Any]]:
        """Return the answer, the variables being what a person has chosen."""
        chosen = CHOSEN | {"bucket": self.store.bucket, "metric": METRIC_OF.get(panel, metric)}
        start_ms = self.end_ms - STEPS * STEP_MS // 2
        return ASK[flavour](self.store, put_in(text, flavour, chosen, start_ms=start_ms, end_ms=self.end_ms + 1))


def fill(influxdb: Influx, folder: Path, trouble: str = "") -> Iterator[Filled]:
    with influx_bucket(influxdb, f"grafana-{uuid.uuid4().hex[:8]}") as store:
        end_ms = int(time.time() * 1000)
        points = System(end_ms, folder, trouble).points
        # What single instances say must not mislead a rule: it is there while all is well, and costs time otherwise.
        assert (
            write(store, [one for one in points if not trouble or not one.measurement.startswith(INSTANCE_PREFIX)]) == 0
        )
        yield Filled(store, end_ms)


@pytest.fixture(scope="module")
def healthy(influxdb: Influx, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A system in which all is well."""
    yield from fill(influxdb, tmp_path_factory.mktemp("system"))


def panels(flavour: Any) -> list[Any]:
    """Return every panel of every dashboard, named."""
    made = resources(Settings(flavour=flavour)).dashboards
    return [
        pytest.param(flavour, one, id=f"{flavour}-{model['title']}-{one['title']}".replace(" ", "_"))
        for model in made.values()
        for one in model["panels"]
        if one["type"] != "row"
    ]


@pytest.mark.parametrize(("flavour", "panel"), [*panels("flux"), *panels("influxql")])
def test_every_panel_shows_something(healthy: Filled, flavour: str, panel: dict[str, Any]) -> None:
    """Each query of each panel has an answer with values in it, and the columns by which its lines are called."""
    for target in panel["targets"]:
        rows = healthy.ask(flavour, target["query"], panel["title"])
        assert rows, target["query"]
        values = [
            value
            for row in rows
            for name, value in row.items()
            if not name.startswith("_st")
            and name not in {"time", "_time", "name", "result", "table"}
            and value is not None
        ]
        assert values, (rows[:3], target["query"])
        if panel["type"] != "table":
            named = labels(panel, target)
            assert all(named <= row.keys() for row in rows), (named, rows[0])
            # To Grafana, each table of a Flux answer is a line: it takes the labels of its first row.
            lines = {(row.get("table"), *(row[name] for name in sorted(named))) for row in rows}
            assert flavour == "influxql" or len(lines) == len({row["table"] for row in rows})


def labels(panel: dict[str, Any], target: dict[str, Any]) -> set[str]:
    """Return the labels of which the name of a query's lines is made."""
    named = target.get("alias", "").replace("$m", "$tag_name")
    for one in panel["fieldConfig"]["overrides"]:
        if one["matcher"] == {"id": "byFrameRefID", "options": target["refId"]}:
            named += "".join(each["value"] for each in one["properties"] if each["id"] == "displayName")
    return set(re.findall(r"(?:\$tag_|labels\.)(\w+)", named))


@pytest.mark.parametrize("flavour", ["flux", "influxql"])
@pytest.mark.parametrize(
    ("board", "title"), [("metric", "Sum"), ("metric", "Rate"), ("instances", "Count by instance")]
)
def test_any_name_can_be_chosen(healthy: Filled, flavour: Any, board: str, title: str) -> None:
    """A metric whose name is full of quotes, slashes and brackets is found like any other."""
    made = resources(Settings(flavour=flavour)).dashboards[f"tallystream-{board}"]["panels"]
    (target,) = next(one for one in made if one["title"] == title and one["type"] != "row")["targets"]
    assert healthy.ask(flavour, target["query"], metric=ODD)


@pytest.mark.parametrize("flavour", ["flux", "influxql"])
def test_every_variable_has_values(healthy: Filled, flavour: Any) -> None:
    """What can be chosen at the top of a dashboard is found in the store, and what must be there is among it."""
    wanted = {
        "bucket": healthy.store.bucket,
        "app": "orders",
        "metric": "records.processed",
        "instance": "orders-1",
        "group": "billing",
        "topic": "orders",
    }
    for model in resources(Settings(flavour=flavour)).dashboards.values():
        for variable in model["templating"]["list"]:
            if variable["type"] == "query":
                rows = healthy.ask(flavour, variable["query"]["query"])
                found = {str(value) for row in rows for value in row.values()}
                metric = f"instance:{wanted['metric']}" if model["title"].endswith("Instances") else wanted["metric"]
                assert (metric if variable["name"] == "metric" else wanted[variable["name"]]) in found, (
                    variable,
                    found,
                )


@pytest.mark.parametrize("flavour", ["flux", "influxql"])
def test_restarts_are_marked(healthy: Filled, flavour: Any) -> None:
    """The annotation's query finds the restart, with its text."""
    made = resources(Settings(flavour=flavour)).dashboards["tallystream-metric"]
    (one,) = made["annotations"]["list"]
    assert {row["text"] for row in healthy.ask(flavour, one["target"]["query"])} == {"restart: orders-2"}


def test_sums_and_rates_are_exact(healthy: Filled) -> None:
    """The line of a sum ends at the sum, the line of a rate is what was counted by the seconds that it took."""
    panels = resources(Settings()).dashboards["tallystream-metric"]["panels"]
    made = {one["title"]: one for one in panels if one["type"] != "row"}
    (query,) = made["Sum"]["targets"]
    sums = [row["_value"] for row in healthy.ask("flux", query["query"])]
    assert sums[-1] == STEPS * 60  # two instances, 30 records a step each
    assert sums == sorted(sums)
    (query,) = made["Rate"]["targets"]
    rates = {round(row["_value"], 2) for row in healthy.ask("flux", query["query"])[2:-2]}
    assert rates == {60 / (STEP_MS / 1000)}
    (query,) = made["Processed twice"]["targets"]
    assert {row["_value"] for row in healthy.ask("flux", query["query"])} == {0}


SECOND_MS = 1000
ADDED = {"fast": range(0, 61, 3), "slow": (0, 30, 60), "idle": (0,)}
"""The seconds at which each series is written: a count of 10 for each second that has passed, from 1000 on."""


@pytest.fixture
def several(influxdb: Influx) -> Iterator[Filled]:
    """A metric with three series that are written at different times, and what single instances say of it."""
    with influx_bucket(influxdb, f"grafana-{uuid.uuid4().hex[:8]}") as store:
        start_ms = int(time.time()) // 60 * 60 * SECOND_MS - 60 * SECOND_MS
        points = []
        for topic, seconds in ADDED.items():
            tags = {"app": "orders", "metric_type": "counter", "topic": topic}
            for at in seconds:
                ts_ms = start_ms + at * SECOND_MS
                fields = {"count": 1000 + 10 * at, "lives": 1, "instances": 1, "retired": 0}
                points.append(Point("records.processed", tags, fields, ts_ms))
                said = {"count": 77, "life": "L"}
                points.append(
                    Point(f"{INSTANCE_PREFIX}records.processed", {**tags, "instance": "orders-1"}, said, ts_ms)
                )
        assert write(store, points) == 0
        yield Filled(store, start_ms + 60 * SECOND_MS)


def asked(filled: Filled, flavour: Any, board: str, title: str) -> list[dict[str, Any]]:
    """Ask what the first panel of this title asks, all metrics chosen, for the minute before the newest point."""
    model = resources(Settings(flavour=flavour)).dashboards[f"tallystream-{board}"]
    (target,) = next(one for one in model["panels"] if one["title"] == title and one["type"] != "row")["targets"]
    every = {one["name"]: one["allValue"] for one in model["templating"]["list"] if "allValue" in one}
    chosen = CHOSEN | {"bucket": filled.store.bucket, "metric": every.get("metric", "records.processed")}
    span = {"start_ms": filled.end_ms - 60 * SECOND_MS, "end_ms": filled.end_ms + (flavour == "flux")}
    return ASK[flavour](filled.store, put_in(target["query"], flavour, chosen, step_s=15, **span))


def test_series_that_are_written_at_different_times_are_added_up(several: Filled) -> None:
    """A sum now is that of the newest point of each series, a rate what all of them added: in both languages.

    In InfluxQL, sums over time are a line for each series, which holds. What instances say is not among all metrics.
    """
    total = 2 * (1000 + 600) + 1000
    (now,) = asked(several, "flux", "overview", "Sums now")
    assert (now["Metric"], now["Sum"]) == ("records.processed", total)
    (now,) = asked(several, "influxql", "overview", "Sums now")
    assert (now["name"], now["app"], now["sum"]) == ("records.processed", "orders", total)
    for board, of in (("overview", " by metric and app"), ("metric", "")):
        assert asked(several, "flux", board, f"Sum{of}")[-1]["_value"] == total
        lines = asked(several, "influxql", board, f"Sum{of}")
        assert {row["name"] for row in lines} == {"records.processed"}
        fast, slow, idle = ([row["sum"] for row in lines if row["topic"] == topic] for topic in ADDED)
        assert fast == [1120, 1270, 1420, 1570, 1600]
        assert slow == [1000, 1000, 1300, 1300, 1600]
        assert idle == [1000] * 5
        rates = asked(several, "influxql", board, f"Rate{of}")
        assert {row["name"] for row in rates} == {"records.processed"}
        assert [row["rate"] for row in rates] == [0, 10, (150 + 300) / 15, 10, (30 + 300) / 15]


def test_what_an_instance_says_of_several_series_is_added_up(several: Filled) -> None:
    """In each window the newest of each series that was written in it, in order of time."""
    rows = asked(several, "flux", "instances", "Count by instance")
    assert [row["_value"] for row in rows] == [3 * 77, 77, 2 * 77, 77, 2 * 77]
    times = [row["_time"].timestamp() * 1000 - several.end_ms for row in rows]
    assert times == [-45_000, -30_000, -15_000, 0, 1]


def measured(filled: Filled) -> dict[str, list[dict[str, Any]]]:
    """Return what each rule measures now."""
    asked = queries(Settings(bucket=filled.store.bucket, thresholds=LIMITS))
    return {slug: flux(filled.store, text) for slug, text in asked.items()}


def test_no_rule_fires_while_all_is_well(healthy: Filled) -> None:
    """Every rule measures something (each thing it watches), and nothing of it is above its limit."""
    found = measured(healthy)
    for rule in RULES:
        rows = found[rule.slug]
        assert [row for row in rows if row["_value"] > rule.limit(LIMITS)] == [], rule.slug
        assert all(isinstance(row["_value"], float) for row in rows)
        assert all(set(rule.labels) <= row.keys() for row in rows)
        assert rows or rule.slug == "lag-status"  # there, only what is bad is a row
        assert len({row["table"] for row in rows}) == len(rows)  # to Grafana, a table is an alert


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.slug)
def test_a_rule_fires_on_its_trouble(influxdb: Influx, tmp_path: Path, rule: Any) -> None:
    """Data that is made to trigger the rule is above its limit, with the labels that say where."""
    for filled in fill(influxdb, tmp_path, rule.slug):
        rows = [row for row in measured(filled)[rule.slug] if row["_value"] > rule.limit(LIMITS)]
        assert rows
        labels = {name: row[name] for row in rows[:1] for name in rule.labels}
        assert labels == {
            "instance-silent": {"app": "orders"},
            "sum-stopped": {"app": "orders", "metric": "records.processed"},
            "lag-status": {"group": "billing", "status": "STOP"},
            "lag-seconds": {"group": "billing"},
            "processed-twice": {"app": "orders", "metric": "records.processed"},
            "clock-skew": {"group": "billing"},
        }.get(rule.slug, {})
