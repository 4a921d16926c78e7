"""The sink of Prometheus: the names of samples, and the text."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.levels import VALUES, exposed, samples, sum_point
from tallystream_aggregator.http_server import Response
from tallystream_aggregator.shipping.points import point
from tallystream_aggregator.sinks.base import Point, filled
from tallystream_aggregator.sinks.prometheus import names
from tallystream_aggregator.sinks.prometheus import sink as module
from tallystream_aggregator.sinks.prometheus.names import Place, label_name, labels, place
from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink
from tallystream_aggregator.sums import Sum

# Few words, many of them suffixes of families, so that names are often similar.
_names = st.lists(
    st.sampled_from(
        ["x", "a-b", "total", "seconds", "sum", "count", "min", "m1_rate", "value", "_", "1", "tallystream.sums"]
    ),
    max_size=3,
).flatmap(lambda words: st.sampled_from([".", "_", " "]).map(lambda between: between.join(words)))
_texts = st.text(st.sampled_from('%_aU.é\n"\\'), max_size=4) | st.text(max_size=5)
_tags = st.dictionaries(
    _texts | st.sampled_from(["app", "tag_app", "name", "tag_name", "le", "quantile", "U__a"]), _texts, max_size=3
)


@pytest.mark.parametrize(
    ("name", "metric_type", "field", "expected"),
    [
        ("orders.processed", "counter", "count", Place("orders_processed_total", "counter")),
        ("orders.processed", "meter", "m1_rate", Place("orders_processed_m1_rate", "gauge")),
        ("cpu.time", "float_counter", "sum", Place("cpu_time_total", "counter")),
        ("orders.open", "gauge", "sum", Place("orders_open", "gauge")),
        ("orders.open", "updown", "number", Place("orders_open_number", "gauge")),
        ("batch.size", "histogram", "p999", Place("batch_size", "gauge", (("quantile", "0.999"),))),
        ("batch.size", "histogram", "sum", Place("batch_size_sum", "gauge")),
        ("batch.seconds", "timer", "count", Place("batch_seconds_count", "untyped")),
        ("batch", "timer", "m1_rate", Place("batch_m1_rate", "gauge")),
        ("batch", "timer", "min", Place("batch_seconds_min", "gauge")),
        ("consumer.position", "position", "position", Place("consumer_position_total", "counter")),
        ("consumer.position", "position", "start", Place("consumer_position_start", "gauge")),
        ("t.bucket", "buckets", "-0.5", Place("t_bucket", "untyped", (("le", "-0.5"),))),
        ("t.bucket", "buckets", "count", Place("t_bucket", "untyped", (("le", "+Inf"),))),
        ("orders.total", "counter", "count", Place("orders_total", "counter")),
        ("orders.processed", "counter", "lives", Place("tallystream_living_lives", "gauge")),
        ("orders.processed", "counter", "overflow", Place("tallystream_sum_overflow", "gauge")),
        ("tallystream.sums", "gauge", "sum", Place("tallystream_sums_value", "gauge")),
    ],
)
def test_the_place_of_a_field(name: str, metric_type: str, field: str, expected: Place) -> None:
    """Counts end in _total and timers in their unit. No metric has a sample in a family of Tallystream's own."""
    assert place(name, metric_type, field) == expected


def test_reserved_and_invalid_tags_are_renamed() -> None:
    """A tag name, quantile or le gets a prefix. A key that is not a label's name is escaped as by Prometheus."""
    row = Sum(app="a", name="n", type="counter", tags={"app": "1", "name": "2", "le": "3", "a.b": "", "a_b": "%"}, ts=0)
    assert labels("", point(row).tags) == {
        "name": "%",
        "app": "a",
        "metric_type": "counter",
        "tag_app": "1",
        "tag_name": "2",
        "tag_le": "3",
        "U__a_2e_b": "%",
        "a_b": "%%",
    }
    assert label_name("__name__") == "U______name____"
    assert label_name("größe") == "U__gr_f6__df_e"
    assert label_name("") == "U__"


@settings(deadline=None)
@given(_texts, _texts)
def test_different_tags_have_different_labels(one: str, other: str) -> None:
    """Labels are valid and not reserved. Values are never empty."""
    for text in (one, other):
        assert re.fullmatch(r"(?!__)[A-Za-z_][A-Za-z0-9_]*", label_name(text))
        assert filled(text)
    assert (label_name(one) == label_name(other)) == (one == other)
    assert (filled(one) == filled(other)) == (one == other)


@settings(deadline=None)
@given(st.lists(st.tuples(_names, st.sampled_from(sorted(VALUES)), _tags), max_size=6, unique_by=repr))
def test_the_exposition_is_valid_and_complete(sums: list[tuple[str, str, dict[str, str]]]) -> None:
    """Each family and each sample occurs once, under the family's name. Each field of each sum is a sample.

    This holds for any names, types and tags. Prometheus' own parser reads the text.
    """
    sink = PrometheusSink("127.0.0.1", 0)
    points = [sum_point(kind, n, 1_700_000_000_000 + n, name, tags) for n, (name, kind, tags) in enumerate(sums)]
    sink.write(points)
    sink.caught_up(time.monotonic())
    text = sink.metrics().text
    family = ""
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# TYPE "):
            family = line.split(" ")[2]
        assert line.startswith(("# ", f"{family} ", f"{family}{{"))
    read = samples(text)
    assert len(read) == 1 + sum(1 + len(one.fields) for one in points)
    wanted = {(one.measurement, tuple(sorted(one.tags.items()))): {one.ts_ms: dict(one.fields)} for one in points}
    assert read == exposed(wanted)


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
