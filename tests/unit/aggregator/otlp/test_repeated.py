"""`RepeatedScopes` returns what `read_metric` returns, whatever it read before."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from support.otlp import BEGIN_NS, attributes, counter, gauge, number, resource_metrics
from tallystream_aggregator.otlp import repeated
from tallystream_aggregator.otlp.points import read_metric
from tallystream_aggregator.otlp.repeated import RepeatedScopes

if TYPE_CHECKING:
    import pytest

times = st.sampled_from([0, 1, BEGIN_NS, BEGIN_NS + 1, 2**63 - 1, 2**63, 2**64 - 1])
integers = st.integers(-(2**63), 2**63 - 1)
floats = st.floats() | st.sampled_from([0.5, -0.0, math.nan, math.inf])
points = st.builds(
    lambda value, start, time, name, flags: number(
        value, start, time, attributes=attributes(**{name: "é" * len(name)}), flags=flags
    ),
    integers | floats,
    times,
    times,
    st.sampled_from(["a", "b", "\x3f\xf0", "bb"]),
    st.sampled_from([0, 0, 0, 0, 1]),
)
metrics = st.builds(
    lambda kind, name, found: kind(name, *found),
    st.sampled_from([counter, gauge, lambda *made: counter(*made, monotonic=False)]),
    st.sampled_from(["n", "m", "\0"]),
    st.lists(points, max_size=3),
) | st.just(pb.Metric(name="s", summary=pb.Summary(data_points=[pb.SummaryDataPoint(count=1)])))


def scope(*found: pb.Metric) -> pb.ScopeMetrics:
    """Return these metrics as a scope."""
    return resource_metrics(list(found)).scope_metrics[0]


def text_of(found: Any) -> list[str]:
    """Return points as text, in which NaN equals NaN and -0.0 differs from 0.0."""
    return [repr(point) for point in found]


def expected(found: pb.ScopeMetrics) -> list[str]:
    """Return the points as `read_metric` reads them."""
    return text_of(point for metric in found.metrics for point in read_metric(metric))


@given(st.lists(st.tuples(st.lists(metrics, max_size=3), st.lists(st.tuples(integers | floats, times, times)))))
def test_the_same_points_as_without_a_memory(steps: list[tuple[list[pb.Metric], list[tuple[Any, int, int]]]]) -> None:
    """After any other scopes, and after the same scope with other values of any type, the points are the same."""
    reader = RepeatedScopes()
    for found, changes in steps:
        one = scope(*found)
        assert text_of(reader.read(one)) == expected(one)
        for value, start_ns, time_ns in changes:
            for point in (point for metric in one.metrics for point in metric.sum.data_points):
                point.start_time_unix_nano, point.time_unix_nano = start_ns, time_ns
                point.MergeFrom(number(value, start_ns, time_ns))
            assert text_of(reader.read(one)) == expected(one)


def test_a_repeated_scope_is_not_read_metric_by_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second export of a process costs a fraction: its metrics are not read one by one again."""
    reader = RepeatedScopes()
    list(reader.read(scope(counter("n", number(5)), gauge("g", number(0.5, 0)))))
    monkeypatch.setattr(repeated, "read_metric", None)
    later = scope(counter("n", number(7, BEGIN_NS, BEGIN_NS + 9)), gauge("g", number(-2.5, 0, BEGIN_NS + 9)))
    assert text_of(reader.read(later)) == expected(later)


def test_what_is_kept_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scopes beyond the limit replace all others, so that names that never come back do not fill the memory."""
    monkeypatch.setattr(repeated, "MAX_POINTS", 3)
    reader = RepeatedScopes()
    for name in ("a", "b", "c", "dd", "e"):
        one = scope(counter(name, number(1)))
        assert text_of(reader.read(one)) == expected(one)
    assert reader._points == 2
