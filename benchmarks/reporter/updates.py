"""The cost of an update, compared with other libraries in the same run."""

from __future__ import annotations

import random
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from timing import Side, nanoseconds

from tallystream import MetricRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

OURS, PROMETHEUS, PYFORMANCE, OTEL = "tallystream", "prometheus_client", "pyformance", "opentelemetry-sdk"


class Row(NamedTuple):
    """A line of the table: nanoseconds by side, and the maximum ratio of our time to that of another library."""

    what: str
    measured: dict[str, float]
    goals: dict[str, float]


def rows(rounds: int, scale: float) -> list[Row]:
    """Measure every kind of update."""
    sides = _sides()
    latencies = [random.Random(1).lognormvariate(-3, 1) for _ in range(1000)]
    plan: list[tuple[str, str, dict[str, str], list[float], int, int, dict[str, float]]] = [
        ("counter.inc()", "counter", _INC, [1], 200_000, 1, {PROMETHEUS: 0.4, PYFORMANCE: 0.5}),
        ("counter.inc(), 4 threads at once", "counter", _INC, [1], 50_000, 4, {PROMETHEUS: 0.4, PYFORMANCE: 0.5}),
        ("counter.inc(n)", "counter", _INC_N, [7], 200_000, 1, {}),
        ("meter.mark()", "meter", {OURS: "it.mark()", PYFORMANCE: "it.mark()"}, [1], 50_000, 1, {}),
        ("histogram.update(value)", "histogram", _UPDATE, latencies, 50_000, 1, {PROMETHEUS: 1, PYFORMANCE: 0.5}),
        ("timer.update(seconds)", "timer", _TIMED, latencies, 30_000, 1, {PROMETHEUS: 1, PYFORMANCE: 0.5}),
        ("with timer.time(): pass", "timer", _WITH, [1], 20_000, 1, {PROMETHEUS: 1, PYFORMANCE: 0.5}),
    ]
    found = []
    for what, kind, statements, values, calls, threads, goals in plan:
        chosen = [Side(name, statement, sides[kind][name]()) for name, statement in statements.items()]
        found.append(Row(what, nanoseconds(chosen, values, int(calls * scale), rounds, threads), goals))
    return found


_INC = {OURS: "it.inc()", PROMETHEUS: "it.inc()", PYFORMANCE: "it.inc()", OTEL: "it.add(1)"}
_INC_N = {OURS: "it.inc(value)", PROMETHEUS: "it.inc(value)", PYFORMANCE: "it.inc(value)", OTEL: "it.add(value)"}
_UPDATE = {
    OURS: "it.update(value)",
    PROMETHEUS: "it.observe(value)",
    PYFORMANCE: "it.add(value)",
    OTEL: "it.record(value)",
}
# The timer of pyformance has no public method for a known duration.
_TIMED = {OURS: "it.update(value)", PROMETHEUS: "it.observe(value)", PYFORMANCE: "it._update(value)"}
_WITH = {
    OURS: "with it.time(): pass",
    PROMETHEUS: "with it.time(): pass",
    PYFORMANCE: "with it.time(): pass",
}


def _sides() -> dict[str, dict[str, Callable[[], Any]]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pyformance imports pkg_resources, which warns
        import pyformance
    import prometheus_client
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    ours, theirs = MetricRegistry("bench"), pyformance.MetricsRegistry()
    otel = MeterProvider(metric_readers=[InMemoryMetricReader()]).get_meter("bench")
    nowhere = prometheus_client.CollectorRegistry
    return {
        "counter": {
            OURS: lambda: ours.counter("counter"),
            PROMETHEUS: lambda: prometheus_client.Counter("counter", "c", registry=nowhere()),
            PYFORMANCE: lambda: theirs.counter("counter"),
            OTEL: lambda: otel.create_counter("counter"),
        },
        "meter": {OURS: lambda: ours.meter("meter"), PYFORMANCE: lambda: theirs.meter("meter")},
        "histogram": {
            OURS: lambda: ours.histogram("histogram"),
            PROMETHEUS: lambda: prometheus_client.Histogram("histogram", "h", registry=nowhere()),
            PYFORMANCE: lambda: theirs.histogram("histogram"),
            OTEL: lambda: otel.create_histogram("histogram"),
        },
        "timer": {
            OURS: lambda: ours.timer("timer"),
            PROMETHEUS: lambda: prometheus_client.Histogram("timer", "t", registry=nowhere()),
            PYFORMANCE: lambda: theirs.timer("timer"),
        },
    }
