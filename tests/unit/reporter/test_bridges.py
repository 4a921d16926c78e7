"""The bridges, with the real prometheus_client and the real OpenTelemetry SDK."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

import prometheus_client as prometheus
import pytest
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from prometheus_client.core import CollectorRegistry, CounterMetricFamily, GaugeHistogramMetricFamily
from prometheus_client.multiprocess import MultiProcessCollector

from support.interpreter import run_program
from support.steps import Topic
from tallystream import ConfigError, MetricRegistry
from tallystream.bridges.base import Source
from tallystream.bridges.opentelemetry import OpenTelemetrySource
from tallystream.bridges.prometheus import PrometheusSource
from tallystream.kafka.life import LifeHistory
from tallystream.record import Counter, Gauge, Histogram, Metric, UpDown
from tallystream.testing import ManualClock, assert_count, find


@pytest.fixture
def library() -> CollectorRegistry:
    return CollectorRegistry()


def metrics(source: Source) -> list[Metric]:
    """Return the current metrics of the source."""
    return [reading.metric for reading in source.read()]


def test_prometheus_types(library: CollectorRegistry) -> None:
    """Every type of prometheus_client is converted, labels become tags, and `_created` is not reported."""
    requests = prometheus.Counter("requests", "", ["method"], registry=library)
    requests.labels("GET").inc(3)
    requests.labels("POST").inc(2.75)
    prometheus.Gauge("queue", "", registry=library).set(1.5)
    summary = prometheus.Summary("size", "", registry=library)
    summary.observe(2)
    summary.observe(5)
    prometheus.Histogram("seconds", "", ["path"], registry=library, buckets=(1, 10)).labels("/").observe(4)
    prometheus.Enum("state", "", registry=library, states=["up", "down"]).state("down")
    prometheus.Info("build", "", registry=library).info({"version": "1"})
    assert metrics(PrometheusSource(library)) == [
        Counter(name="requests_total", tags={"method": "GET"}, count=3),
        Counter(name="requests_total", tags={"method": "POST"}, count=2),
        Gauge(name="queue", value=1.5),
        Histogram(name="size", count=2, sum=7.0),
        Histogram(name="seconds", tags={"path": "/"}, count=1, sum=4.0),
        Gauge(name="state", tags={"state": "up"}, value=0.0),
        Gauge(name="state", tags={"state": "down"}, value=1.0),
        Gauge(name="build_info", tags={"version": "1"}, value=1.0),
    ]


def test_a_prometheus_histogram_without_a_sum_is_a_counter(library: CollectorRegistry) -> None:
    """It has none if there is a bucket below zero."""
    prometheus.Histogram("balance", "", registry=library, buckets=(-1, 1)).observe(-7)
    assert metrics(PrometheusSource(library)) == [Counter(name="balance_count", count=1)]


class Collector:
    """A custom collector with the families that the test sets."""

    def __init__(self, *families: Any) -> None:
        self.families = families

    def collect(self) -> Iterable[Any]:
        """Return the families; raise the exception if one is among them."""
        for family in self.families:
            if isinstance(family, Exception):
                raise family
            yield family


def test_custom_prometheus_collectors(library: CollectorRegistry, registry: MetricRegistry) -> None:
    """Families without `_created`, with NaN or of rare types are converted; a collector that raises is counted."""
    counter = CounterMetricFamily("jobs", "", labels=["queue"])
    counter.add_metric(["a"], 3)
    counter.add_metric(["b"], float("nan"))
    rare = GaugeHistogramMetricFamily("ages", "", buckets=[("+Inf", 2)], gsum_value=5)
    library.register(Collector(counter, rare))
    library.register(Collector(RuntimeError("broken")))
    registry.add_source(PrometheusSource(library))
    assert_count(registry, "jobs_total", 3, tags={"queue": "a"})
    assert find(registry, "jobs_total", tags={"queue": "b"}) is None
    assert find(registry, "ages_gsum") == Gauge(name="ages_gsum", value=5)
    # Four readings, and in each the NaN and the broken collector.
    assert_count(registry, "tallystream.reporter.source.failed", 8, tags={"source": "prometheus"})


def test_sums_are_exact_over_prometheus_resets_and_removals(
    library: CollectorRegistry, registry: MetricRegistry
) -> None:
    """In the table's sums, reset(), remove() and clear() between reports lose and repeat nothing."""
    requests = prometheus.Counter("requests", "", ["method"], registry=library)
    seconds = prometheus.Histogram("seconds", "", registry=library)
    registry.add_source(PrometheusSource(library))
    lives, topic, clock = LifeHistory("shop"), Topic(), ManualClock()

    def reported(name: str) -> tuple[int | None, float | None]:
        clock.advance(1)
        (pending,) = lives.prepare(registry.snapshot(), clock.wall_ms())
        topic.append(b"app-1", pending.value, at=clock.wall_ms() - ManualClock().wall_ms())
        lives.acknowledged(pending, clock.wall_ms(), clock.wall_ms())
        assert topic.changes.dead == []
        found = topic.sum(name)
        return found.count, found.sum

    requests.labels("GET").inc(5)
    assert reported("requests_total")[0] == 5
    requests.labels("GET").reset()
    requests.labels("GET").inc(2)
    assert reported("requests_total")[0] == 7
    requests.remove("GET")
    seconds.observe(3)
    assert reported("seconds") == (1, 3.0)
    requests.labels("GET").inc(50)  # above its value of before the reset
    assert reported("requests_total")[0] == 57
    requests.clear()
    requests.labels("GET").inc(100)
    library.unregister(seconds)
    prometheus.Histogram("seconds", "", registry=library).observe(4)
    assert reported("requests_total")[0] == 157
    assert reported("seconds") == (2, 7.0)


def test_a_prometheus_multiprocess_collector_is_rejected(tmp_path: Path, library: CollectorRegistry) -> None:
    """Each process would report the sums of all processes; the error names the registry to pass."""
    MultiProcessCollector(library, path=str(tmp_path))
    with pytest.raises(ConfigError, match="registry: 'one with a MultiProcessCollector' can't be used; give the reg"):
        PrometheusSource(library)


MULTIPROCESS = """
    import os
    import prometheus_client
    from tallystream import MetricRegistry
    from tallystream.bridges.prometheus import PrometheusSource
    library = prometheus_client.CollectorRegistry()
    jobs = prometheus_client.Counter("jobs", "", registry=library)
    registry = MetricRegistry("shop")
    registry.add_source(PrometheusSource(library))
    def show():
        print([m.count for m in registry.snapshot() if m.name == "jobs_total"], flush=True)
    jobs.inc(5)
    show()
    if not os.fork():
        jobs.inc(2)
        show()
        os._exit(0)
    os.wait()
    jobs.inc()
    show()
"""


def test_a_forked_child_reports_its_own_prometheus_counts(tmp_path: Path) -> None:
    """In multi-process mode, too, parent and child each report what they counted."""
    output = run_program(MULTIPROCESS, environment={"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)})
    assert output.splitlines() == ["[5]", "[2]", "[6]"]


def test_opentelemetry_types() -> None:
    """Every instrument is converted; attributes and the meter's name become tags."""
    source = OpenTelemetrySource()
    assert metrics(source) == []
    views = [View(instrument_name="fine", aggregation=ExponentialBucketHistogramAggregation())]
    provider = MeterProvider(metric_readers=[source.reader], views=views)
    meter = provider.get_meter("my.library", "1.0")

    def observe(_: CallbackOptions) -> Iterator[Observation]:
        yield Observation(7, {"kind": "x"})

    orders = meter.create_counter("orders")
    orders.add(3, {"paid": True, "method": "card"})
    orders.add(2.75)
    meter.create_up_down_counter("open").add(-2)
    meter.create_gauge("temperature").set(20.5)
    for name in ("coarse", "fine"):
        histogram = meter.create_histogram(name)
        histogram.record(2)
        histogram.record(5)
    meter.create_observable_counter("cpu", [observe])
    meter.create_observable_up_down_counter("depth", [observe])
    meter.create_observable_gauge("load", [observe])
    scope = {"otel.scope.name": "my.library"}
    seen = {"kind": "x", **scope}
    expected = [
        Counter(name="orders", tags={"paid": "true", "method": "card", **scope}, count=3),
        Counter(name="orders", tags=scope, count=2),
        UpDown(name="open", tags=scope, value=-2),
        Gauge(name="temperature", tags=scope, value=20.5),
        Histogram(name="coarse", tags=scope, count=2, sum=7.0, min=2, max=5),
        Histogram(name="fine", tags=scope, count=2, sum=7.0, min=2, max=5),
        Counter(name="cpu", tags=seen, count=7),
        UpDown(name="depth", tags=seen, value=7),
        Gauge(name="load", tags=seen, value=7),
    ]
    found = metrics(source)
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    orders.add(1)
    provider.shutdown()
    assert Counter(name="orders", tags=scope, count=3) in metrics(source)


class Plan(Enum):
    """An attribute that is not one of the types of OpenTelemetry, but that the SDK accepts."""

    FREE = 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\xff\x00", "/wA="),
        (("a", b"\xff\x00"), '["a", "/wA="]'),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Plan.FREE, "Plan.FREE"),
        (None, "null"),
        (3, "3"),
    ],
)
def test_attributes_of_any_type_become_tags(value: Any, text: str) -> None:
    """Bytes are in base64, other types are text, within a sequence too. The metrics after it are reported."""
    source = OpenTelemetrySource()
    meter = MeterProvider(metric_readers=[source.reader]).get_meter("m")
    meter.create_counter("logins").add(1, {"by": value})
    meter.create_counter("orders").add(2)
    scope = {"otel.scope.name": "m"}
    assert metrics(source) == [
        Counter(name="logins", tags={"by": text, **scope}, count=1),
        Counter(name="orders", tags=scope, count=2),
    ]


def test_counts_with_the_same_tags_are_added_up(registry: MetricRegistry) -> None:
    """Meters may differ in their version or attributes, and attributes in their type: no tag has these."""
    source = OpenTelemetrySource()
    provider = MeterProvider(metric_readers=[source.reader])
    registry.add_source(source)
    provider.get_meter("m", "1.0").create_counter("orders").add(1)
    provider.get_meter("m", "2.0").create_counter("orders").add(2)
    provider.get_meter("m", "2.0", attributes={"shop": "a"}).create_counter("orders").add(4)
    requests = provider.get_meter("m").create_counter("requests")
    requests.add(1, {"status": 200})
    requests.add(2, {"status": "200"})
    scope = {"otel.scope.name": "m"}
    for _ in range(2):
        assert_count(registry, "orders", 7, tags=scope)
        assert_count(registry, "requests", 3, tags={"status": "200", **scope})
    assert_count(registry, "tallystream.reporter.source.failed", 0, tags={"source": "opentelemetry"})


def test_the_bridges_import_without_their_libraries() -> None:
    """The package and both bridges can be imported; creating a bridge names the missing library."""
    program = """
        import sys
        sys.modules["prometheus_client"] = sys.modules["opentelemetry"] = None
        import tallystream
        from tallystream.bridges.opentelemetry import OpenTelemetrySource
        from tallystream.bridges.prometheus import PrometheusSource
        for make in (OpenTelemetrySource, PrometheusSource):
            try:
                make()
            except ImportError as error:
                print(error.name.partition(".")[0])
    """
    assert run_program(program).split() == ["opentelemetry", "prometheus_client"]
