"""The sketch: quantiles within 1.1 %, also after merging; a limited size; an exact form in the record."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from support.buckets import buckets, encoded
from support.fuzz import examples
from tallystream import record
from tallystream.metrics.sketch import MAX_BUCKETS, Sketch

SHARES = [0.0, 0.01, 0.5, 0.75, 0.95, 0.98, 0.99, 0.999, 1.0]
ERROR = (2 ** (1 / 32) - 1) / (2 ** (1 / 32) + 1)
# Magnitudes over 17 powers of ten.
NUMBERS = st.one_of(st.just(0.0), st.floats(1e-8, 1e9), st.floats(-1e9, -1e-8), st.integers(-1000, 1000))
FLOATS = st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=200)


def sketch_of(values: list[float]) -> Sketch:
    sketch = Sketch()
    sketch.add(values)
    return sketch


@examples(200)
@given(st.lists(st.lists(NUMBERS, max_size=60), min_size=1, max_size=5))
def test_merged_quantiles_are_within_their_relative_error(instances: list[list[float]]) -> None:
    """Quantiles of merged sketches are within 1.0831 % of the exact ones of all values."""
    assert ERROR < 0.010831
    merged = Sketch()
    for values in instances:
        merged.merge(Sketch.decode(sketch_of(values).encode()))
    together = sorted(value for values in instances for value in values)
    assume(together)
    assert (merged.count, merged.scale) == (len(together), 5)
    for share, found in zip(SHARES, merged.quantiles(SHARES), strict=True):
        exact = together[int(share * (len(together) - 1))]
        assert abs(found - exact) <= ERROR * (1 + 1e-9) * abs(exact)


@pytest.mark.parametrize("value", [1e-8, 0.25, 0.7, 1.0, 2.0, 1.0109, 3.3, 1e9])
def test_a_bucket_includes_its_upper_bound(value: float) -> None:
    """OpenTelemetry's rule: bucket i counts the values in (base ** i, base ** (i + 1)]."""
    found = sketch_of([value]).encode()
    ((index, *_),) = map(msgspec.structs.astuple, found.positive)
    assert 2 ** (index / 32) < value <= 2 ** ((index + 1) / 32) * (1 + 1e-15)
    assert msgspec.structs.replace(found, positive=(), negative=found.positive) == sketch_of([-value]).encode()


@given(FLOATS, st.integers(0, 200))
def test_order_and_grouping_do_not_matter(values: list[float], cut: int) -> None:
    """Values in any order, or merged from two sketches, give the same sketch: so merging is associative, too."""
    all_values = sketch_of(values).encode()
    assert sketch_of(values[::-1]).encode() == all_values
    for first, second in ((values[:cut], values[cut:]), (values[cut:], values[:cut])):
        merged = sketch_of(first)
        merged.merge(sketch_of(second))
        assert merged.encode() == all_values


@given(FLOATS, st.integers(0, 200))
def test_subtracting_an_earlier_state_is_exact(values: list[float], cut: int) -> None:
    """The difference plus the earlier state is the sketch, also if the scale decreased between them."""
    all_values, earlier = sketch_of(values), sketch_of(values[:cut])
    later = all_values.copy()
    later.merge(earlier, -1)
    assert later.count == len(values[cut:])
    later.merge(earlier)
    assert later.encode() == all_values.encode()


@given(FLOATS)
def test_encoding_is_exact(values: list[float]) -> None:
    """A sketch of any floats is decoded from JSON unchanged."""
    found = sketch_of(values).encode()
    assert msgspec.json.decode(msgspec.json.encode(found), type=record.Sketch) == found
    assert Sketch.decode(found).encode() == found


def test_many_empty_buckets_are_left_out() -> None:
    """Values far apart need few bytes; a few empty buckets are zeros, and both forms are decoded."""
    assert sketch_of([1.0, 1.05]).encode().positive == encoded(buckets(-1, 1, 0, 0, 1))
    sketch = sketch_of([1.5, 1.5, 1000.0]).encode()
    assert sketch == record.Sketch(scale=5, positive=encoded(buckets(18, 2), buckets(318, 1)))
    for other in (
        encoded(buckets(17, 0, 2, *[0] * 299, 1, 0)),
        encoded(buckets(9), buckets(17, 0), buckets(18, 2, width=8), buckets(317, 0, 1, 0, width=2)),
    ):
        assert Sketch.decode(record.Sketch(scale=5, positive=other)).encode() == sketch


@pytest.mark.parametrize("count", [1, 255, 256, 65_535, 65_536])
def test_counts_take_as_many_bytes_as_the_largest_one_needs(count: int) -> None:
    """A count that no longer fits widens those of all buckets, and none is lost, with or without gaps."""
    sketch = sketch_of([1.05, 1000.0, *[1.0] * count])
    assert sketch.count == count + 2
    width = 1 if count < 256 else 2 if count < 65_536 else 4
    near, far = encoded(buckets(-1, count, 0, 0, 1), buckets(318, 1, width=width))
    assert sketch.encode() == record.Sketch(scale=5, positive=(near, far))
    assert Sketch.decode(sketch.encode()).encode() == sketch.encode()


def test_the_size_is_limited_and_the_error_grows_with_the_range() -> None:
    """Values over 600 powers of ten fit; each decrease of the scale doubles the width of buckets."""
    values = [10.0**power * factor for power in range(-300, 301) for factor in (1, 1.3, 1.7, 2.2, 3, 4, 5, 7)]
    sketch = sketch_of(values)
    assert (sketch.scale, sketch.count) == (1, len(values))
    assert len(sketch.positive.counts) <= MAX_BUCKETS
    assert len(msgspec.json.encode(sketch.encode())) < 12_000
    base = 2**0.5
    assert sketch.quantiles([1.0])[0] == pytest.approx(7e300, rel=(base - 1) / (base + 1))
    extremes = [1.7976931348623157e308, 5e-324]
    assert all(map(math.isfinite, sketch_of([*extremes, *(-each for each in extremes)]).quantiles(SHARES)))


@pytest.mark.parametrize(
    "sketch",
    [
        record.Sketch(scale=6, positive=encoded(buckets(0, *[1] * (MAX_BUCKETS + 1)))),
        record.Sketch(scale=6, negative=encoded(buckets(0, 1), buckets(MAX_BUCKETS, 1))),
        record.Sketch(scale=20, positive=encoded(buckets(-(2**31), 1), buckets(2**31 - 1, 1))),
        record.Sketch(scale=6, positive=encoded(buckets(1024 * 64, 1))),
        record.Sketch(scale=6, positive=encoded(buckets(-1076 * 64, 1))),
        record.Sketch(scale=-10, positive=encoded(buckets(1, 1))),
        record.Sketch(scale=-10, negative=encoded(buckets(-3, 1))),
        record.Sketch(scale=6, positive=encoded(buckets(1, 1), buckets(1, 1))),
        record.Sketch(scale=6, positive=(record.Buckets(offset=0, width=2, counts=b"\1\0\1"),)),
    ],
)
def test_an_impossible_sketch_is_rejected(sketch: record.Sketch) -> None:
    """Too many buckets, also empty ones, one twice, some outside of floats, and parts of counts are errors."""
    with pytest.raises(ValueError, match=r"buckets|the counts have 3 bytes"):
        Sketch.decode(sketch)


@pytest.mark.parametrize("scale", [-10, -1, 0, 6, 20])
def test_sketches_are_merged_at_the_lower_scale(scale: int) -> None:
    """OpenTelemetry's SDKs start at scale 20; quantiles are within the error of the lower scale."""
    other = record.Sketch(scale=scale, positive=encoded(buckets(0, 3)), zero_count=1)
    for first, second in ((other, sketch_of([1.0000001] * 4).encode()), (sketch_of([1.0000001] * 4).encode(), other)):
        merged = Sketch.decode(first)
        merged.merge(Sketch.decode(second))
        assert merged.encode() == record.Sketch(scale=min(scale, 5), positive=encoded(buckets(0, 7)), zero_count=1)
        assert 1 < merged.quantiles([1.0])[0] <= (math.inf if scale == -10 else 2 ** (2.0**-merged.scale))


def test_invalid_calls_raise() -> None:
    """There are no quantiles of an empty sketch, and none above 1."""
    with pytest.raises(ValueError, match="empty sketch"):
        Sketch().quantiles([0.5])
    with pytest.raises(ValueError, match="from 0 to 1"):
        sketch_of([1.0]).quantiles([1.5])
