"""The four real stores, and the points that each must have at its level."""

from __future__ import annotations

import math
import time
import urllib.request
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple, Protocol

from prometheus_client.parser import text_string_to_metric_families

from support.collector import Collector
from support.stores import NOW_MS, content
from support.wait import wait_until
from tallystream_aggregator.shipping.points import point
from tallystream_aggregator.sinks.base import Field, Point, Sink
from tallystream_aggregator.sinks.otlp.sink import PROBE
from tallystream_aggregator.sinks.prometheus import names
from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink
from tallystream_aggregator.sums import Sum

Level = Literal["every point", "latest"]
Key = tuple[str, tuple[tuple[str, str], ...]]
Contents = dict[Key, dict[int, dict[str, "Field"]]]
"""Measurement and tags → time in ms → field → value."""

VALUES: dict[str, dict[str, Any]] = {
    "counter": {"count": 1},
    "float_counter": {"sum": 2.25},
    "meter": {"count": 1, "mean_rate": 0.5, "m1_rate": 0.25, "m5_rate": 0.125, "m15_rate": 0.0625},
    "gauge": {"sum": 0.5, "min": -1.5, "max": 2.0, "mean": 0.25, "number": 2},
    "updown": {"sum": -3.0, "min": -3.0, "max": 0.0, "mean": -1.5, "number": 2},
    "histogram": {"count": 9, "sum": 4.5, "min": 0.1, "max": 0.9, "p50": 0.5, "p75": 0.6, "p98": 0.8, "p999": 0.9},
    "timer": {"count": 1, "sum": 0.25, "min": 0.25, "max": 0.25, "m1_rate": 1.0, "p95": 0.25, "p99": 0.25},
    "position": {"start": 3, "position": 17},
    "buckets": {"count": 1, "bounds": [-0.5, 1.0], "counts": [0, 1, 0]},
}


def sum_point(
    kind: str, n: int, ts_ms: int, name: str = "orders.processed", tags: dict[str, str] | None = None
) -> Point:
    """Return the point of the n-th sum of a series, from the shipper's own code. Its count is n."""
    values = VALUES[kind] | ({"count": n} if "count" in VALUES[kind] else {})
    return point(
        Sum(app="orders", name=name, type=kind, tags=tags or {}, lives=2, instances=1, retired=n, ts=ts_ms, **values)
    )


def promised(level: Level, points: Iterable[Point]) -> Contents:
    """Return the points of a store of that level after these points were written in this order."""
    contents: Contents = {}
    for one in points:
        series = contents.setdefault((one.measurement, tuple(sorted(one.tags.items()))), {})
        if level == "latest":
            series.clear()
        series[one.ts_ms] = {**series.get(one.ts_ms, {}), **one.fields}
    return contents


class Target(Protocol):
    """An empty store of some level."""

    level: Level

    def open(self) -> Sink:
        """Return a new sink of it."""

    def holds(self, sink: Sink, wanted: Contents, /) -> bool:
        """Return whether it has exactly these points. `sink` is still open."""


class Readable(NamedTuple):
    """A store that has a reader."""

    settings: StoreSettings
    level: Level = "every point"

    def open(self) -> Sink:
        return open_sink(self.settings)

    def holds(self, _: Sink, wanted: Contents) -> bool:
        """Compare the points with those of a new reader."""
        fields = sorted({field for series in wanted.values() for point in series.values() for field in point})
        found: Contents = {}
        for measurement in {name for name, _ in wanted}:
            for tags, points in content(self.settings, measurement, fields).items():
                found[measurement, tags] = points
        return found == wanted


class Scraped(NamedTuple):
    """The sink of Prometheus, read with Prometheus' own client library."""

    level: Level = "latest"

    def open(self) -> Sink:
        """Return a new sink of it, whose writer has nothing else to write."""
        sink = PrometheusSink("127.0.0.1", 0)
        sink.caught_up(time.monotonic())
        return sink

    def holds(self, sink: Sink, wanted: Contents) -> bool:
        """Compare every sample. The unit tests of the names check the name of each value."""
        return samples(scrape(sink)) == exposed(wanted)


class Collected(NamedTuple):
    """A real OpenTelemetry Collector, whose destination has everything that it has forwarded."""

    collector: Collector
    level: Level = "every point"

    def open(self) -> Sink:
        return open_sink(StoreSettings.parse(f"otlp:{self.collector.url}", env={}))

    def holds(self, _: Sink, kept: Contents) -> bool:
        """Compare every data point in the order of arrival, as a receiver that replaces a point with the same time.

        The sink's probe is left out.
        """
        found: Contents = {}
        for (name, tags, ts_ms), fields in data_points(self.collector.destination.received):
            if name == PROBE.measurement:
                continue
            found.setdefault((name, tags), {}).setdefault(ts_ms, {}).update(fields)
        return found == kept


MAIN_FIELD = {
    "counter": "count",
    "meter": "count",
    "float_counter": "sum",
    "gauge": "sum",
    "updown": "sum",
    "position": "position",
}
QUANTILES = {0.0: "min", 0.5: "p50", 0.75: "p75", 0.95: "p95", 0.98: "p98", 0.99: "p99", 0.999: "p999", 1.0: "max"}


def data_points(
    requests: Iterable[dict[str, Any]],
) -> Iterator[tuple[tuple[str, tuple[tuple[str, str], ...], int], dict[str, Field]]]:
    """Yield the point (measurement, tags, time in ms) and the fields of each data point in OTLP requests as JSON."""
    for resource in (resource for request in requests for resource in request["resourceMetrics"]):
        of_app = {"app" if key == "service.name" else key: value for key, value in _attributes(resource["resource"])}
        for metric in (metric for scope in resource["scopeMetrics"] for metric in scope["metrics"]):
            (kind,) = metric.keys() & {"sum", "gauge", "summary", "histogram"}
            assert kind != "sum" or metric["sum"]["aggregationTemporality"] == 2  # cumulative
            for one in metric[kind]["dataPoints"]:
                assert one.get("startTimeUnixNano") == (None if kind == "gauge" else "1")
                tags = {**of_app, **dict(_attributes(one))}
                field = tags.pop("field", MAIN_FIELD.get(tags.get("metric_type", ""), ""))
                name = metric["name"].removesuffix(f".{field}") if kind == "gauge" else metric["name"]
                suffix = ".bucket" if tags.get("metric_type") == "buckets" else ""
                identity = (_text(name) + suffix, tuple(sorted(tags.items())), int(one["timeUnixNano"]) // 10**6)
                yield identity, _values(one, field)


def _attributes(of: dict[str, Any]) -> Iterator[tuple[str, str]]:
    return ((_text(one["key"]), one["value"]["stringValue"]) for one in of.get("attributes", ()))


def _text(name: str) -> str:
    """Return the original name: `%` is the empty name."""
    return name if name.strip("%") else name[:-1]


def _values(one: dict[str, Any], field: str) -> dict[str, Field]:
    if "asInt" in one:
        return {field: int(one["asInt"])}
    if "asDouble" in one:
        return {field: float(one["asDouble"])}
    if "explicitBounds" in one:
        up_to = accumulate(map(int, one["bucketCounts"]))
        return {
            "count": int(one["count"]),
            **dict(zip(map(repr, map(float, one["explicitBounds"])), up_to, strict=False)),
        }
    quantiles = {QUANTILES[value.get("quantile", 0.0)]: value["value"] for value in one["quantileValues"]}
    return {"count": int(one["count"]), "sum": one["sum"], **quantiles}


Sample = tuple[str, frozenset[tuple[str, str]]]


def scrape(sink: Sink) -> str:
    """Return the response of /metrics."""
    assert isinstance(sink, PrometheusSink)
    with urllib.request.urlopen(f"http://127.0.0.1:{sink.port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        return str(answer.read().decode())


def samples(text: str) -> dict[Sample, float]:
    """Return the samples of an exposition. Each sample and each family must occur once."""
    found: dict[Sample, float] = {}
    families: set[tuple[str, bool]] = set()
    for family in text_string_to_metric_families(text):
        name = (family.name, family.type == "counter")  # without the _total, which the library removes
        assert name not in families
        families.add(name)
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def exposed(wanted: Contents) -> dict[Sample, Field]:
    """Return the samples of a store of the latest sums."""
    found: dict[Sample, Field] = {(names.SUMS, frozenset()): float(len(wanted))}
    for (name, pairs), points in wanted.items():
        tags = dict(pairs)
        labels = names.labels(name, tags)
        ((ts_ms, fields),) = points.items()
        found[names.SUM_TIME, frozenset(labels.items())] = ts_ms / 1000
        for field, value in fields.items():
            place = names.place(name, tags["metric_type"], field)
            found[place.family, frozenset((labels | dict(place.labels)).items())] = value
    return found


def require(target: Target, sink: Sink, points: Sequence[Point]) -> None:
    """Wait until the store has exactly the points of its level."""
    wanted = promised(target.level, points)
    wait_until(lambda: target.holds(sink, wanted), 30, f"{len(points)} points are stored ({target.level})")


BAD: list[Point] = [
    *(
        point(Sum(app="orders", name="bad", type="gauge", sum=number, number=1, ts=NOW_MS))
        for number in (math.nan, math.inf, -math.inf)
    ),
    *(point(Sum(app="orders", name="bad", type="counter", count=count, ts=NOW_MS)) for count in (2**63, -(2**63) - 1)),
    point(Sum(app="orders", name="bad", type="counter", count=1, ts=2**63)),
]
"""Points that every store rejects."""
