"""The sketches of verify compared with those of the reporter and the table: equal decoding, merging and quantiles."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections import Counter
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from support import record_reader
from support.fuzz import examples
from tallystream import record
from tallystream.metrics.sketch import Sketch
from tallystream_aggregator.table.arithmetic.sketches import MergedSketch
from tallystream_aggregator.verify import sketches

floats = st.floats(allow_nan=False, allow_infinity=False)
near = st.floats(0.001, 1000.0)
values = st.lists(st.one_of(floats, near, st.just(0.0)), min_size=1, max_size=30)
numbers = st.integers(-12, 22) | st.sampled_from([2**31, -(2**31), 2**63, -(2**31) - 1, 1.5, None, True, "1"])
scalars = st.integers(0, 5) | st.integers(-4000, 4000) | numbers


@examples(150)
@given(st.lists(values, min_size=1, max_size=5))
def test_merged_sketches_have_the_same_buckets_and_quantiles(lives: list[list[float]]) -> None:
    """Whatever the values: of both signs, zeros, of different scales, over more buckets than a sketch may have."""
    merged, added = MergedSketch(), Counter[tuple[int, int, int]]()
    for life in lives:
        one = Sketch()
        one.add(life)
        merged.replace(([], []), ([len(life)], [one.encode()]))
        added.update(read(as_json(one.encode())) or {})
    assert sum(added.values()) == sum(map(len, lives))
    bins, total = sketches.merged(added), merged.total()
    assert total is not None
    content = as_json(total.encode())
    assert read(content) == bins
    assert content["scale"] == total.scale
    for found, expected in zip(
        sketches.quantiles(bins).values(), total.quantiles(list(sketches.SHARES.values())), strict=True
    ):
        assert math.isclose(found or 0.0, expected or 0.0, rel_tol=1e-9)


texts = st.binary(max_size=9).map(lambda data: b64encode(data).decode()) | st.text("AQ=g+/\n", max_size=5)
widths = st.sampled_from([1, 2, 4, 8]) | numbers
runs = st.fixed_dictionaries({"offset": scalars}, optional={"width": widths, "counts": texts | scalars})
sides = st.none() | st.lists(runs | numbers, max_size=3)


def as_json(sketch: record.Sketch) -> Any:
    """Return a sketch as the standard library reads it."""
    return json.loads(msgspec.json.encode(sketch))


@examples(300)
@given(
    st.fixed_dictionaries({"scale": scalars}, optional={"zero_count": scalars, "positive": sides, "negative": sides})
)
def test_an_unusual_sketch_is_read_by_both_or_by_none(value: dict[str, Any]) -> None:
    """Both refuse the same sketches, and read the same buckets from the others."""
    assert read(value) == read_by_the_reporter(value)


def read(value: object) -> sketches.Bins | None:
    """Return the buckets that verify reads, or None if it refuses them."""
    try:
        found = msgspec.convert(value, record_reader.Sketch)
        sketches.number_of(found)
    except ValueError:
        return None
    return sketches.bins_of(found)


def read_by_the_reporter(value: object) -> sketches.Bins | None:
    """Return the buckets that the reporter's decoder reads, or None if it refuses them."""
    try:
        one = Sketch.decode(msgspec.convert(value, record.Sketch))
    except (ValueError, msgspec.ValidationError):
        return None
    bins = {(0, 0, 0): one.zeros} if one.zeros else {}
    for sign, buckets in ((1, one.positive), (-1, one.negative)):
        bins |= {(sign, one.scale, at): count for at, count in enumerate(buckets.counts, buckets.offset) if count}
    return bins
