"""The cost of a report.

The live broker is the mock broker of librdkafka in this process: real producers and acknowledgements, but no network.
"""

from __future__ import annotations

import json
import statistics
import time
import warnings
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystream import KafkaReporter, MetricRegistry
from tallystream.metrics import histogram
from tallystream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream.metrics.base import Metric

LIVE: dict[str, Any] = {"bootstrap_servers": "in-process", "options": {"test.mock.num.brokers": 1}}
MIXES = {
    "1,000 counters": {"counter": 1000},
    "600 counters, 200 gauges, 200 meters": {"counter": 600, "gauge": 200, "meter": 200},
    "the same and 10 histograms that changed": {"counter": 590, "gauge": 200, "meter": 200, "histogram": 10},
    "the same and 100 histograms that changed": {"counter": 500, "gauge": 200, "meter": 200, "histogram": 100},
    "the same and 100 histograms that did not change": {"counter": 500, "gauge": 200, "meter": 200, "still": 100},
}

GOAL_MS = 3
INTERVAL, PAST = 10, 360
WAITING = histogram.BUFFER - 1
"""The maximum number of values that a report usually finds in the buffer of a histogram."""

NEW_VALUES = histogram.BUFFER + WAITING


class Cost(NamedTuple):
    """The cost of one report: milliseconds of the wall clock, and of processor time."""

    passed: float
    worked: float


def make_reporter(registry: MetricRegistry, where: dict[str, Any], **more: Any) -> KafkaReporter:
    """Return a reporter to the broker `where`."""
    return KafkaReporter(registry, instance="bench", own_metrics=False, **where, **more)


def fill(registry: MetricRegistry, mix: dict[str, int]) -> list[Metric]:
    """Create the given number of metrics of each type; `still` are histograms that `touch` may skip."""
    return [
        getattr(registry, "histogram" if kind == "still" else kind)(f"{kind}.number.{number}", tags={"topic": "orders"})
        for kind, count in mix.items()
        for number in range(count)
    ]


def touch(metrics: list[Any], draw: Random, values: int, *, still: bool) -> None:
    """Update each metric. Histograms get the given number of values."""
    for metric in metrics:
        if metric.kind == "counter":
            metric.inc()
        elif metric.kind == "gauge":
            metric.set(draw.random())
        elif metric.kind == "meter":
            metric.mark()
        elif still or not metric.name.startswith("still"):
            for _ in range(values):
                metric.update(draw.lognormvariate(-3, 1))


class Application:
    """An application that has run for an hour.

    Every INTERVAL seconds, all metrics were updated and read; histograms got NEW_VALUES values. Now the `still`
    histograms are not updated any more.
    """

    def __init__(self, mix: dict[str, int]) -> None:
        self.clock = ManualClock()
        self.registry = MetricRegistry("bench", clock=self.clock)
        self._draw, self._metrics = Random(1), fill(self.registry, mix)
        for _ in range(PAST):
            self.work(still=True)
            self.registry.snapshot(views=False)

    def work(self, *, still: bool = False) -> None:
        """Advance the clock by an interval, and update all metrics."""
        self.clock.advance(INTERVAL)
        touch(self._metrics, self._draw, NEW_VALUES, still=still)


def send(reporter: KafkaReporter) -> Cost:
    """Send a report and wait until the broker has it. Return the cost up to its hand-over to the producer."""
    begin, began = time.perf_counter(), time.thread_time()
    assert reporter._send(final=False)
    cost = Cost((time.perf_counter() - begin) * 1000, (time.thread_time() - began) * 1000)
    wait_for_broker(reporter)
    return cost


def wait_for_broker(reporter: KafkaReporter) -> None:
    """Wait until no record is in flight."""
    while reporter._lives.in_flight:
        reporter._connection.poll(0.1)


def report_cost(mix: dict[str, int], rounds: int) -> Cost:
    """Return the mean cost of taking a snapshot, encoding it and giving it to the producer.

    The mean, unlike the median, includes work that is done once for many reports.
    """
    app = Application(mix)
    reporter = make_reporter(app.registry, LIVE)
    assert reporter.report_now(60)
    costs = []
    for _ in range(rounds):
        app.work()
        costs.append(send(reporter))
    reporter.stop()
    return Cost(*(statistics.fmean(each) for each in zip(*costs, strict=True)))


def peers_cost(rounds: int) -> dict[str, float]:
    """Return the median milliseconds that other libraries take to write 1,000 counters as text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pyformance
    import prometheus_client
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    collector, reader, registry = (
        prometheus_client.CollectorRegistry(),
        InMemoryMetricReader(),
        pyformance.MetricsRegistry(),
    )
    meter = MeterProvider(metric_readers=[reader]).get_meter("bench")
    for number in range(1000):
        prometheus_client.Counter(f"counter_number_{number}", "c", ["topic"], registry=collector).labels("orders").inc()
        meter.create_counter(f"counter.number.{number}").add(1, {"topic": "orders"})
        registry.counter(f"counter.number.{number}").inc()

    def otel() -> str:
        data = reader.get_metrics_data()
        assert data
        return str(data.to_json())

    sides: dict[str, Callable[[], object]] = {
        "prometheus_client": lambda: prometheus_client.generate_latest(collector),
        "pyformance": lambda: json.dumps(registry.dump_metrics()),
        "opentelemetry-sdk": otel,
    }
    measured: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, write in sides.items():
            begin = time.perf_counter()
            write()
            measured[name].append((time.perf_counter() - begin) * 1000)
    return {name: statistics.median(times) for name, times in measured.items()}
