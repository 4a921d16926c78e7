"""Every query of the dashboards and alert rules for InfluxDB, on a real one with points that the product writes."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from support.grafana_queries import METRIC_OF, SELECTED, Rule, flux, interpolate, rules
from support.grafana_system import MINUTES, SPECIAL, STEP_MS, STEPS, System
from support.stores import Influx, influx_bucket, write
from tallystream_aggregator.sinks.base import INSTANCE_PREFIX, Point
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_dashboards.grafana.generate import dashboards
from tallystream_dashboards.grafana.settings import Settings, Thresholds

pytestmark = [pytest.mark.integration, pytest.mark.timeout(700)]

LIMITS = Thresholds(stopped_minutes=MINUTES)


class Filled:
    """A bucket with the points of a system that ran until `end_ms`."""

    def __init__(self, store: StoreSettings, end_ms: int) -> None:
        self.store, self.end_ms = store, end_ms

    def query(self, text: str, panel: str = "", metric: str = "records.processed") -> list[dict[str, Any]]:
        """Return the rows of a query with selected variables."""
        selected = SELECTED | {"bucket": self.store.bucket, "metric": METRIC_OF.get(panel, metric)}
        start_ms = self.end_ms - STEPS * STEP_MS // 2
        return flux(self.store, interpolate(text, "flux", selected, start_ms=start_ms, end_ms=self.end_ms + 1))


def fill(influxdb: Influx, fault: str = "") -> Iterator[Filled]:
    with influx_bucket(influxdb, f"grafana-{uuid.uuid4().hex[:8]}") as store:
        end_ms = int(time.time() * 1000)
        points = System(end_ms, fault).points
        # No rule may read the values of single instances: only the system without a fault has them, to save time.
        assert (
            write(store, [point for point in points if not fault or not point.measurement.startswith(INSTANCE_PREFIX)])
            == 0
        )
        yield Filled(store, end_ms)


@pytest.fixture(scope="module")
def healthy(influxdb: Influx) -> Iterator[Filled]:
    """A system without a fault."""
    yield from fill(influxdb)


def panels() -> list[Any]:
    """Return every panel of every dashboard as a parameter."""
    return [
        pytest.param(one, id=f"{model['title']}-{one['title']}".replace(" ", "_"))
        for model in dashboards(Settings()).values()
        for one in model["panels"]
        if one["type"] != "row"
    ]


@pytest.mark.parametrize("panel", panels())
def test_every_panel_has_data(healthy: Filled, panel: dict[str, Any]) -> None:
    """Each query of each panel returns values, and the columns that name its lines."""
    for target in panel["targets"]:
        rows = healthy.query(target["query"], panel["title"])
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
            # Grafana draws each table of a Flux result as a line, with the labels of its first row.
            lines = {(row.get("table"), *(row[name] for name in sorted(named))) for row in rows}
            assert len(lines) == len({row["table"] for row in rows})


def labels(panel: dict[str, Any], target: dict[str, Any]) -> set[str]:
    """Return the labels in the names of a query's lines."""
    named = ""
    for one in panel["fieldConfig"]["overrides"]:
        if one["matcher"] == {"id": "byFrameRefID", "options": target["refId"]}:
            named += "".join(each["value"] for each in one["properties"] if each["id"] == "displayName")
    return set(re.findall(r"labels\.(\w+)", named))


@pytest.mark.parametrize(
    ("board", "title"), [("metric", "Sum"), ("metric", "Rate"), ("instances", "Count by instance")]
)
def test_a_metric_with_special_characters_can_be_selected(healthy: Filled, board: str, title: str) -> None:
    """Quotes, slashes and brackets in a name are escaped."""
    panels = dashboards(Settings())[f"tallystream-{board}"]["panels"]
    (target,) = next(one for one in panels if one["title"] == title and one["type"] != "row")["targets"]
    assert healthy.query(target["query"], metric=SPECIAL)


def test_every_variable_has_values(healthy: Filled) -> None:
    """The query of each variable returns the values that the system wrote."""
    expected = {
        "bucket": healthy.store.bucket,
        "app": "orders",
        "metric": "records.processed",
        "instance": "orders-1",
        "group": "billing",
        "topic": "orders",
    }
    for model in dashboards(Settings()).values():
        for variable in model["templating"]["list"]:
            if variable["type"] == "query":
                rows = healthy.query(variable["query"]["query"])
                found = {str(value) for row in rows for value in row.values()}
                metric = (
                    f"instance:{expected['metric']}" if model["title"].endswith("Instances") else expected["metric"]
                )
                assert (metric if variable["name"] == "metric" else expected[variable["name"]]) in found, (
                    variable,
                    found,
                )


def test_restarts_are_annotated(healthy: Filled) -> None:
    """The annotation's query returns the restart with its text."""
    model = dashboards(Settings())["tallystream-metric"]
    (one,) = model["annotations"]["list"]
    assert {row["text"] for row in healthy.query(one["target"]["query"])} == {"restart: orders-2"}


def test_sums_and_rates_are_exact(healthy: Filled) -> None:
    """The line of a sum ends at the sum, and a rate is the count divided by the seconds."""
    panels = dashboards(Settings())["tallystream-metric"]["panels"]
    by_title = {one["title"]: one for one in panels if one["type"] != "row"}
    (query,) = by_title["Sum"]["targets"]
    sums = [row["_value"] for row in healthy.query(query["query"])]
    assert sums[-1] == STEPS * 60  # two instances, 30 records each in a step
    assert sums == sorted(sums)
    (query,) = by_title["Rate"]["targets"]
    rates = {round(row["_value"], 2) for row in healthy.query(query["query"])[2:-2]}
    assert rates == {60 / (STEP_MS / 1000)}
    (query,) = by_title["Processed twice"]["targets"]
    assert {row["_value"] for row in healthy.query(query["query"])} == {0}


SECOND_MS = 1000
ADDED = {"fast": range(0, 61, 3), "slow": (0, 30, 60), "idle": (0,)}
"""The seconds at which each series is written; its count starts at 1000 and grows by 10 a second."""


@pytest.fixture
def several(influxdb: Influx) -> Iterator[Filled]:
    """A metric with three series that are written at different times, and the values of an instance."""
    with influx_bucket(influxdb, f"grafana-{uuid.uuid4().hex[:8]}") as store:
        start_ms = int(time.time()) // 60 * 60 * SECOND_MS - 60 * SECOND_MS
        points = []
        for topic, seconds in ADDED.items():
            tags = {"app": "orders", "metric_type": "counter", "topic": topic}
            for at in seconds:
                ts_ms = start_ms + at * SECOND_MS
                fields = {"count": 1000 + 10 * at, "lives": 1, "instances": 1, "retired": 0}
                points.append(Point("records.processed", tags, fields, ts_ms))
                row = {"count": 77, "life": "L"}
                points.append(
                    Point(f"{INSTANCE_PREFIX}records.processed", {**tags, "instance": "orders-1"}, row, ts_ms)
                )
        assert write(store, points) == 0
        yield Filled(store, start_ms + 60 * SECOND_MS)


def query_panel(filled: Filled, board: str, title: str) -> list[dict[str, Any]]:
    """Run the query of a panel, with all metrics selected, for the minute before the newest point."""
    model = dashboards(Settings())[f"tallystream-{board}"]
    (target,) = next(one for one in model["panels"] if one["title"] == title and one["type"] != "row")["targets"]
    all_values = {one["name"]: one["allValue"] for one in model["templating"]["list"] if "allValue" in one}
    selected = SELECTED | {"bucket": filled.store.bucket, "metric": all_values.get("metric", "records.processed")}
    span = {"start_ms": filled.end_ms - 60 * SECOND_MS, "end_ms": filled.end_ms + 1}
    return flux(filled.store, interpolate(target["query"], "flux", selected, step_s=15, **span))


def test_sums_over_series_that_are_written_at_different_times_are_exact(several: Filled) -> None:
    """A sum adds the newest point of each series. All metrics do not include the values of single instances."""
    total = 2 * (1000 + 600) + 1000
    (now,) = query_panel(several, "overview", "Sums now")
    assert (now["Metric"], now["Sum"]) == ("records.processed", total)
    for board, suffix in (("overview", " by metric and app"), ("metric", "")):
        assert query_panel(several, board, f"Sum{suffix}")[-1]["_value"] == total


def test_the_values_of_an_instance_are_added_over_its_series(several: Filled) -> None:
    """Each window adds the newest point of each series that was written in it; the windows are in order of time."""
    rows = query_panel(several, "instances", "Count by instance")
    assert [row["_value"] for row in rows] == [3 * 77, 77, 2 * 77, 77, 2 * 77]
    times = [row["_time"].timestamp() * 1000 - several.end_ms for row in rows]
    assert times == [-45_000, -30_000, -15_000, 0, 1]


def measured(filled: Filled) -> dict[str, tuple[Rule, list[dict[str, Any]]]]:
    """Return each rule with the rows of its query."""
    settings = Settings(bucket=filled.store.bucket, thresholds=LIMITS)
    return {rule.slug: (rule, flux(filled.store, rule.query)) for rule in rules(settings)}


def test_no_rule_fires_without_a_fault(healthy: Filled) -> None:
    """The query of every rule returns rows with the rule's labels, and no value above its limit."""
    for rule, rows in measured(healthy).values():
        assert [row for row in rows if row["_value"] > rule.limit] == [], rule.slug
        assert all(isinstance(row["_value"], float) for row in rows)
        assert all(rule.labels <= row.keys() for row in rows)
        assert rows or rule.slug == "lag-status"  # it has rows only for bad statuses
        assert len({row["table"] for row in rows}) == len(rows)  # Grafana makes an alert of each table


@pytest.mark.parametrize("slug", [rule.slug for rule in rules(Settings())])
def test_a_rule_fires_on_its_fault(influxdb: Influx, slug: str) -> None:
    """On data with the rule's fault, a value is above the limit, with the labels of the fault."""
    for filled in fill(influxdb, slug):
        rule, rows = measured(filled)[slug]
        rows = [row for row in rows if row["_value"] > rule.limit]
        assert rows
        labels = {name: row[name] for row in rows[:1] for name in rule.labels}
        assert labels == {
            "instance-silent": {"app": "orders"},
            "sum-stopped": {"app": "orders", "metric": "records.processed"},
            "lag-status": {"group": "billing", "status": "ERR"},
            "lag-seconds": {"group": "billing"},
            "processed-twice": {"app": "orders", "metric": "records.processed"},
            "records-lost": {"app": "orders", "metric": "records.processed"},
        }.get(slug, {})
