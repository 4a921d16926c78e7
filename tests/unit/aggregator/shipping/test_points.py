"""The point of a sum: its name, tags and fields, and that two sums never share a point."""

from __future__ import annotations

import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream.metric_types import WHOLE
from tallystream_aggregator.shipping.points import ALWAYS, point
from tallystream_aggregator.sums import VALUES, Sum

KINDS: dict[str, dict[str, typing.Any]] = {
    "counter": {"count": 2**63 - 1},
    "updown": {"sum": -3, "min": -5, "max": 2, "mean": -1.5, "number": 2},
    "gauge": {"sum": 0.5, "min": 0, "max": 1, "mean": 0.25, "number": 2},
    "meter": {"count": 9, "mean_rate": 1, "m1_rate": 2.0, "m5_rate": 0, "m15_rate": 0.5},
    "histogram": {"count": 9, "sum": 2**53, "min": 0, "max": 9, "p50": 4.0, "p99": 9},
    "timer": {"count": 1, "sum": 0.25, "min": 0.25, "max": 0.25, "m1_rate": 1.0, "p999": 0.25},
    "position": {"start": 0, "position": 17},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_type_of_metric_has_its_fields(kind: str) -> None:
    """These are the fields that are set, and those of every sum. App and type are tags."""
    row = Sum(
        app="orders", name="n", type=kind, tags={"topic": "x"}, lives=2, instances=1, retired=3, ts=5, **KINDS[kind]
    )
    made = point(row)
    assert (made.measurement, made.ts_ms) == ("n", 5)
    assert made.tags == {"topic": "x", "app": "orders", "metric_type": kind}
    assert made.fields == {**KINDS[kind], "lives": 2, "instances": 1, "retired": 3}


@pytest.mark.parametrize("kind", KINDS)
def test_a_field_never_changes_its_type(kind: str) -> None:
    """Counts are integers and all others floats."""
    made = point(Sum(app="a", name="n", type=kind, ts=0, **KINDS[kind]))
    for name, value in made.fields.items():
        assert type(value) is (int if name in {*WHOLE, *ALWAYS} else float), name


def test_every_number_of_a_sum_is_a_field() -> None:
    """Those of its origin are not. The sketch is beside the fields, and each explicit bucket has a field."""
    only_if_true = {"overflow"}
    origin = {"v", "app", "name", "type", "tags", "ts", "offsets", "sketch", "bounds", "counts"}
    assert {*VALUES, *ALWAYS} == set(Sum.__struct_fields__) - origin - only_if_true


def test_explicit_buckets_have_a_field_for_each_bound() -> None:
    """It has the values up to there. The point has the suffix `.bucket`, so it is not beside that of the histogram."""
    row = Sum(app="a", name="t", type="buckets", count=6, bounds=[0.5, 1.0], counts=[1, 2, 3], lives=1, ts=5)
    made = point(row)
    assert (made.measurement, made.tags) == ("t.bucket", {"app": "a", "metric_type": "buckets"})
    assert made.fields == {"count": 6, "0.5": 1, "1.0": 3, "lives": 1, "instances": 0, "retired": 0}
    assert list(made.fields)[-2:] == ["0.5", "1.0"]


def test_a_gauge_without_a_living_life_has_only_its_number() -> None:
    """It has no sum."""
    assert point(Sum(app="a", name="g", type="gauge", number=0, ts=0)).fields == {
        "number": 0,
        "lives": 0,
        "instances": 0,
        "retired": 0,
    }


def test_an_overflow_is_a_field() -> None:
    """The field exists only while it is true."""
    row = Sum(app="a", name="n", type="counter", count=2**63 - 1, overflow=True, ts=0)
    assert point(row).fields == {"count": 2**63 - 1, "lives": 0, "instances": 0, "retired": 0, "overflow": True}


def test_a_tag_with_a_reserved_name_gets_a_prefix() -> None:
    """So does a tag that has the prefix already."""
    tags = {"app": "u1", "metric_type": "u2", "tag_app": "u3", "tag_tag_app": "u4", "tag_x": "u5"}
    assert point(Sum(app="a", name="n", type="counter", count=1, tags=tags, ts=0)).tags == {
        "app": "a",
        "metric_type": "counter",
        "tag_app": "u1",
        "tag_metric_type": "u2",
        "tag_tag_app": "u3",
        "tag_tag_tag_app": "u4",
        "tag_x": "u5",
    }


_tags = st.dictionaries(
    st.sampled_from(["app", "tag_app", "tag_tag_app", "metric_type", "tag_metric_type", "tag_", "x"]) | st.text(),
    st.sampled_from(["counter", "meter", "", "a"]),
    max_size=3,
)
_sums = st.builds(
    lambda app, type_, tags: Sum(app=app, name="n", type=type_, tags=tags, count=1, ts=0),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["counter", "meter"]),
    _tags,
)


@given(_sums, _sums)
def test_two_sums_never_share_a_series(one: Sum, other: Sum) -> None:
    """Points have the same tags only if the app, the type and the tags of their sums are the same."""
    same = (one.app, one.type, one.tags) == (other.app, other.type, other.tags)
    assert (point(one).tags == point(other).tags) == same
