"""The names of sums in Prometheus, and that two sums never have the same sample."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.levels import VALUES, exposed, samples, sum_point
from tallystream_aggregator.shipping.points import point
from tallystream_aggregator.sinks.base import filled
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


@pytest.mark.parametrize("metric_type", VALUES)
def test_every_field_of_every_type_has_its_own_place(metric_type: str) -> None:
    """No two fields of a sum share a sample."""
    fields = sum_point(metric_type, 1, 0).fields
    assert len({place("n", metric_type, field) for field in fields}) == len(fields) > 3


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
