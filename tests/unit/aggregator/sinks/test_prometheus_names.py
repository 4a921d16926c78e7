"""The names of sums in Prometheus, and that two sums never have the same name."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tallystream_aggregator.shipping.points import point
from tallystream_aggregator.sinks.prometheus.names import (
    Place,
    family_name,
    is_plain,
    known,
    label_name,
    label_value,
    labels,
    place,
)
from tallystream_aggregator.sums import VALUES, Sum

TYPES = ("counter", "float_counter", "updown", "gauge", "meter", "histogram", "timer", "position")

# Few letters and our own suffixes, so that names are often similar.
_names = st.text(st.sampled_from("ab._-1"), max_size=6) | st.lists(
    st.sampled_from(["x", "total", "seconds", "sum", "count", "min", "m1_rate", "m1.rate", "value", "mean", "start"]),
    max_size=4,
).map(".".join)
_texts = st.text(st.sampled_from('%_aU.é\n"\\'), max_size=4) | st.text(max_size=5)
_tags = st.dictionaries(
    _texts | st.sampled_from(["app", "tag_app", "name", "tag_name", "le", "U__a"]), _texts, max_size=3
)


@pytest.mark.parametrize(
    ("name", "metric_type", "field", "expected"),
    [
        ("orders.processed", "counter", "count", Place("orders_processed_total", "counter")),
        ("orders.processed", "meter", "count", Place("orders_processed_total", "counter")),
        ("orders.processed", "meter", "m1_rate", Place("orders_processed_m1_rate", "gauge")),
        ("cpu.time", "float_counter", "sum", Place("cpu_time_total", "counter")),
        ("orders.open", "gauge", "sum", Place("orders_open", "gauge")),
        ("orders.open", "updown", "mean", Place("orders_open_mean", "gauge")),
        ("orders.open", "gauge", "number", Place("orders_open_number", "gauge")),
        ("batch.size", "histogram", "p999", Place("batch_size", "summary", "", "0.999")),
        ("batch.size", "histogram", "sum", Place("batch_size", "summary", "_sum")),
        ("batch.size", "histogram", "max", Place("batch_size_max", "gauge")),
        ("batch", "timer", "p50", Place("batch_seconds", "summary", "", "0.5")),
        ("batch.seconds", "timer", "count", Place("batch_seconds", "summary", "_count")),
        ("batch", "timer", "m1_rate", Place("batch_m1_rate", "gauge")),
        ("batch", "timer", "min", Place("batch_seconds_min", "gauge")),
        ("consumer.position", "position", "position", Place("consumer_position_total", "counter")),
        ("consumer.position", "position", "start", Place("consumer_position_start", "gauge")),
        ("orders.total", "counter", "count", Place("orders_total", "counter")),
        ("orders.processed", "counter", "lives", None),
        ("orders.processed", "counter", "p50", None),
        ("orders.processed", "no such type", "count", None),
    ],
)
def test_the_place_of_a_field(name: str, metric_type: str, field: str, expected: Place | None) -> None:
    """Counts end in _total and timers in their unit. Quantiles and sums are a summary, all others gauges."""
    assert place(name, metric_type, field) == expected


def test_every_field_of_every_type_has_its_own_place() -> None:
    """No two fields of a sum share a sample, and every field is exposed for some type."""
    exposed = set()
    for metric_type in TYPES:
        assert known(metric_type)
        found = {field: place("n", metric_type, field) for field in VALUES}
        places = [one for one in found.values() if one is not None]
        assert len(set(places)) == len(places) > 0
        exposed |= {field for field, one in found.items() if one is not None}
    assert exposed == set(VALUES)


@settings(deadline=None)
@given(_texts)
def test_a_family_has_only_allowed_characters(name: str) -> None:
    """It has no colons, which are for recording rules."""
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", family_name(name))


def test_a_plain_name_has_no_label() -> None:
    """It has letters and digits between dots. Any other name is in the label `name`."""
    tags = {"app": "orders", "metric_type": "counter", "topic": "x"}
    assert labels("orders.processed", tags) == tags
    assert labels("orders.processed", tags, named=True) == {"name": "orders.processed", **tags}
    for name in ("orders_processed", "1.orders", "orders..processed", "größe", "x.total", "x.min"):
        assert labels(name, tags) == {"name": name, **tags}
    assert labels("", {}) == {"name": "%"}


def test_reserved_and_invalid_tags_are_renamed() -> None:
    """A tag name, quantile or le gets a prefix. A key that is not a label's name is escaped as by Prometheus."""
    row = Sum(app="a", name="n", type="counter", tags={"app": "1", "name": "2", "le": "3", "a.b": "", "a_b": "%"}, ts=0)
    assert labels("n", point(row).tags) == {
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
        assert label_value(text)
    assert (label_name(one) == label_name(other)) == (one == other)
    assert (label_value(one) == label_value(other)) == (one == other)


_sums = st.builds(
    lambda name, kind, tags: Sum(app="a", name=name, type=kind, tags=tags, ts=0), _names, st.sampled_from(TYPES), _tags
)


@settings(deadline=None)
@given(_sums, _sums)
@example(*(Sum(app="a", name="x.total", type=kind, tags={}, ts=0) for kind in ("counter", "gauge")))
def test_different_sums_have_different_samples(one: Sum, other: Sum) -> None:
    """This holds for any names, types and tags."""
    if (one.name, one.type, one.tags) == (other.name, other.type, other.tags):
        return
    assert not _samples(one) & _samples(other)
    if one.name != other.name:
        assert labels(one.name, {}, named=True) != labels(other.name, {}, named=True)


def _samples(row: Sum) -> set[tuple[str, str, str, frozenset[tuple[str, str]]]]:
    # Gauges and counters are compared without the label of their type. A gauge's family of the same name as a counter's
    # gets another name when both are rendered, so the kind of the family distinguishes them.
    tags = {key: value for key, value in point(row).tags.items() if key != "metric_type"}
    found = labels(row.name, tags | ({} if row.type in ("gauge", "counter") else {"metric_type": row.type}))
    places = [place(row.name, row.type, field) for field in VALUES]
    return {(p.kind, p.family + p.suffix, p.quantile, frozenset(found.items())) for p in places if p is not None}


@settings(deadline=None)
@given(st.tuples(_names, st.sampled_from(TYPES)), st.tuples(_names, st.sampled_from(TYPES)))
def test_two_plain_names_never_share_a_sample(one: tuple[str, str], other: tuple[str, str]) -> None:
    """They have no label `name`."""
    if is_plain(one[0]) and is_plain(other[0]) and one[0] != other[0]:
        samples = [
            {p.family + p.suffix for field in VALUES if (p := place(name, kind, field)) is not None}
            for name, kind in (one, other)
        ]
        assert not samples[0] & samples[1]
