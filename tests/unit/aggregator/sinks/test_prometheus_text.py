"""What the sink of Prometheus shows, and when."""

from __future__ import annotations

import time

import pytest

from support.levels import samples, sum_point
from tallystream_aggregator.health.server import Response
from tallystream_aggregator.shipping.points import point
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.prometheus import names
from tallystream_aggregator.sinks.prometheus import sink as module
from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink
from tallystream_aggregator.sums import Sum

NOW_MS = 1_700_000_000_000


@pytest.fixture
def sink() -> PrometheusSink:
    """A sink whose writer has nothing else to write."""
    made = PrometheusSink("127.0.0.1", 0)
    made.caught_up(time.monotonic())
    return made


def test_metrics_of_several_kinds_may_share_a_family(sink: PrometheusSink) -> None:
    """The label `name` keeps their series apart, and the family has no type."""
    sink.write([sum_point("counter", 7, NOW_MS, "a.b"), sum_point("gauge", 0, NOW_MS, "a_b_total")])
    text = sink.metrics().text
    assert "# HELP a_b_total a.b, over all instances of each app.\n# TYPE a_b_total untyped\n" in text
    assert 'a_b_total{app="orders",metric_type="counter",name="a.b"} 7.0\n' in text
    assert 'a_b_total{app="orders",metric_type="gauge",name="a_b_total"} 0.5\n' in text


@pytest.mark.parametrize("step_ms", [1, 0, -1])
def test_the_last_point_is_shown_with_its_fields_only(sink: PrometheusSink, step_ms: int) -> None:
    """The order counts, not the time: the table's clock may stand still or go back.

    A gauge that no living life reports has no sum any more.
    """
    gauge = Sum(app="a", name="open", type="gauge", sum=5.0, min=5.0, max=5.0, mean=5.0, number=1, ts=1000)
    sink.write([point(gauge)])
    sink.write([point(Sum(app="a", name="open", type="gauge", number=0, ts=1000 + step_ms))])
    shown = {name: value for (name, _), value in samples(sink.metrics().text).items()}
    assert [name for name in shown if name.startswith("open")] == ["open_number"]
    assert shown[names.SUM_TIME] == 1 + step_ms / 1000


def test_explicit_buckets_have_a_sample_for_each_bound_but_not_for_many_long_labels(sink: PrometheusSink) -> None:
    """As a histogram of Prometheus, with the label `le`. Each sample repeats all labels."""
    row = Sum(app="a", name="t", type="buckets", count=6, bounds=[0.5, 1.0], counts=[1, 2, 3], ts=NOW_MS)
    many = Sum(
        app="a",
        name="u",
        type="buckets",
        tags={"k": "v" * 500},
        ts=NOW_MS,
        count=0,
        bounds=[float(bound) for bound in range(500)],
        counts=[0] * 501,
    )
    assert [one.point for one in sink.write([point(row), point(many)])] == [point(many)]
    lines = [line for line in sink.metrics().text.splitlines() if "_bucket{" in line]
    assert lines == [
        f't_bucket{{app="a",le="{le}",metric_type="buckets",name="t.bucket"}} {count}'
        for le, count in (("+Inf", 6.0), ("0.5", 1.0), ("1.0", 3.0))
    ]


def test_points_that_are_not_sums_are_rejected(sink: PrometheusSink, caplog: pytest.LogCaptureFixture) -> None:
    """These are events and rows of single lives. The reason is logged."""
    event = Point("tallystream.events", {"kind": "restart"}, {"text": "x"}, NOW_MS)
    row = Point("n", {"metric_type": "counter", "app": "a"}, {"count": 1, "life": "L1"}, NOW_MS)
    assert [one.point for one in sink.write([event, row])] == [event, row]
    assert "it is not a sum" in caplog.text
    assert "['L1']" in caplog.text


def test_the_text_is_rendered_once_after_each_write(sink: PrometheusSink) -> None:
    """A write without sums changes nothing."""
    sink.write([sum_point("counter", 1, NOW_MS, "x")])
    first = sink.metrics()
    sink.write([])
    assert sink.metrics() is first
    sink.write([sum_point("counter", 2, NOW_MS + 1, "x")])
    assert "x_total{" in sink.metrics().text
    assert sink.metrics().text != first.text


def test_only_the_newest_sums_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is 503 until all are written, and half a minute after the writer knew that last."""
    now_s = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now_s)
    sink = PrometheusSink("127.0.0.1", 0)
    sink.write([sum_point("counter", 1, NOW_MS, "x")])
    assert sink.metrics() == Response(503, "text/plain; charset=utf-8", "the newest sums are not known yet\n")
    sink.caught_up(now_s)
    now_s += 30
    assert sink.metrics().status == 200
    now_s += 1
    assert sink.metrics()[::2] == (503, "the newest sums were last known 31 s ago\n")
    sink.caught_up(now_s)
    assert "x_total{" in sink.metrics().text
    sink.clear()
    assert sink.metrics().status == 503
    sink.caught_up(now_s)
    assert "x_total{" not in sink.metrics().text
