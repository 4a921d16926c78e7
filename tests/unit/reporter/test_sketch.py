"""The sketch: 1 % at every quantile, merged or not, whatever the values; bounded; exact in its encoding."""

from __future__ import annotations

import math
from base64 import b64encode

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tallystream.reporter._bins import BINS_PER_2
from tallystream.reporter.sketch import MAX_BINS, Bins, GrowingSketch, Sketch

SHARES = [0.0, 0.01, 0.5, 0.75, 0.95, 0.98, 0.99, 0.999, 1.0]
# Magnitudes within the 17 powers of ten that the bins of one sign span.
NUMBERS = st.one_of(st.just(0.0), st.floats(1e-8, 1e8), st.floats(-1e8, -1e-8), st.integers(-1000, 1000))


def sketch_of(values: list[float]) -> Sketch:
    sketch = Sketch()
    sketch.add(values)
    return sketch


def state(sketch: Sketch) -> tuple[dict[int, int], dict[int, int], int]:
    return sketch.positive, sketch.negative, sketch.zeros


@settings(max_examples=200)
@given(st.lists(st.lists(NUMBERS, max_size=60), min_size=1, max_size=5))
def test_merged_quantiles_are_within_one_percent(instances: list[list[float]]) -> None:
    """The quantiles of merged sketches are within 1 % of the exact ones of all instances' values together."""
    merged = Sketch()
    for values in instances:
        merged.merge(Sketch.decode(sketch_of(values).encode()))
    together = sorted(value for values in instances for value in values)
    assume(together)
    assert merged.count == len(together)
    for share, found in zip(SHARES, merged.quantiles(SHARES), strict=True):
        exact = together[int(share * (len(together) - 1))]
        assert abs(found - exact) <= 0.010000001 * abs(exact)


@given(st.lists(st.lists(NUMBERS | st.sampled_from([1.0, 2.0, 3.0]), max_size=20), max_size=8), st.integers(1, 200))
def test_a_text_that_is_patched_is_the_one_that_is_made(batches: list[list[float]], times: int) -> None:
    """Encoded again and again while it grows, by bins, by counts that get longer, it is what a new sketch encodes."""
    growing, plain = GrowingSketch(), Sketch()
    for batch in filter(None, batches):
        growing.add(times * batch)
        plain.add(times * batch)
        assert growing.encode() == plain.encode() == growing.encode()
    assert state(Sketch.decode(growing.encode())) == state(plain)


@given(st.lists(st.lists(st.floats(0.5, 50) | st.sampled_from([1e-30, 1e30]), max_size=40), max_size=20))
def test_a_text_takes_new_bins_between_others(batches: list[list[float]]) -> None:
    """Bins that are new, inside and outside, few and more than a byte can count, also when others are collapsed."""
    growing, plain = GrowingSketch(), Sketch()
    for batch in filter(None, batches):
        growing.add(batch)
        plain.add(batch)
        assert growing.encode() == plain.encode()
    assert state(growing.copy()) == state(plain)


def inside(index: int) -> float:
    """Return a value of this bin."""
    return 2.0 ** ((index - 0.5) / BINS_PER_2)


@pytest.mark.parametrize(
    "bins",
    [
        [*range(20), -1, -1, -20, -21],
        [5, 5 + MAX_BINS - 1, 5 + MAX_BINS, 5 + MAX_BINS + 7, 4],
        [5, 5 - MAX_BINS + 1, 5 - MAX_BINS, 6],
        [0, 200, 400, 100, 99, 101, -200, 600, *[300] * 130],
        [0, 20_000],
    ],
)
def test_one_value_after_another_finds_its_bin(bins: list[int]) -> None:
    """Below the lowest, above the highest, far off, close by, at the bounds of what is kept: as in a plain sketch."""
    growing, plain = GrowingSketch(), Sketch()
    for index in bins:
        growing.add([inside(index)])
        plain.add([inside(index)])
        assert growing.encode() == plain.encode()
        assert state(growing.copy()) == state(plain)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=200), st.integers(0, 200))
def test_order_and_grouping_do_not_matter(values: list[float], cut: int) -> None:
    """Any floats, taken in any order or in two sketches that are merged, give the same sketch."""
    whole = sketch_of(values)
    assert state(sketch_of(values[::-1])) == state(whole)
    one, two = sketch_of(values[:cut]), sketch_of(values[cut:])
    two.merge(one)
    assert state(two) == state(whole)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=200), st.integers(0, 200))
def test_what_came_later_is_the_difference(values: list[float], cut: int) -> None:
    """A sketch less an earlier state of it, plus that state, is the sketch; also where bins were collapsed between."""
    whole, earlier = sketch_of(values), sketch_of(values[:cut])
    later = whole.copy()
    later.subtract(earlier)
    assert later.count == len(values[cut:])
    later.merge(earlier)
    assert state(later) == state(whole)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=200))
def test_encoding_is_exact(values: list[float]) -> None:
    """What is decoded is what was encoded, for any floats."""
    sketch = sketch_of(values)
    assert state(Sketch.decode(sketch.encode())) == state(sketch)


_counts = st.dictionaries(st.integers(-1000, 1000), st.integers(0, 62).flatmap(lambda n: st.integers(1, 2 << n)))


@given(_counts, _counts, st.integers(0, 1 << 62))
def test_encoding_is_exact_for_counts_of_any_length(positive: Bins, negative: Bins, zeros: int) -> None:
    """Counts that take one byte, and those that take up to nine, are all there, each in its bin."""
    counts = [{i: min(n, (1 << 63) - 1) for i, n in bins.items()} for bins in (positive, negative)]
    sketch = Sketch(*counts, zeros)
    assert state(Sketch.decode(sketch.encode())) == state(sketch)


def test_the_size_is_bounded_and_the_large_values_keep_their_precision() -> None:
    """Values over 600 powers of ten need no more than the bins of one sign, and the highest quantiles stay good."""
    values = [10.0**power for power in range(-300, 301)] * 7
    sketch = sketch_of([value * factor for value in values for factor in (1, 1.3, 1.7, 2.2, 3, 4, 5, 7)])
    assert len(sketch.positive) <= MAX_BINS
    assert len(sketch.encode()) < 16_000
    assert sketch.quantiles([1.0])[0] == pytest.approx(7e300, rel=0.01)
    assert sketch.count == len(values) * 8
    assert math.isfinite(sketch_of([1.79e308]).quantiles([0.5])[0])


def test_a_thousand_latencies_are_small() -> None:
    """A usual distribution, over three powers of ten, takes less than two kilobytes of the record."""
    assert len(sketch_of([0.001 * 1.007**step for step in range(1000)]).encode()) < 2000


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x02\0\0\0",
        b"\x01",
        b"\x01\0\x01\x02",
        b"\x01\0\x01\x02\0\0",
        b"\x01\0\0\0\0",
        b"\x01" + b"\xff" * 9 + b"\x01\0\0",
        b"\x01\0\x02\x02\x01\0\x01\0",
        b"\x01\0\xff\x7f\0\0",
        b"\x01\0\x02\x00\x01\xff\x7f\x01\x00",
        b"\x01\0\x01\xff\xff\x7f\x01\x00",
        b"\x01\0\0\0\x80",
        b"\x01" + b"\x80" * 10 + b"\0\0\0",
        b"\x01" + b"\x80" * 100_000 + b"\0\0\0",
        b"\x01" + b"\xff" * 100_000,
    ],
)
def test_what_is_no_sketch_is_refused(data: bytes) -> None:
    """Another version, a cut, empty or double bins, too many of them, too far out, too large a count: ValueError."""
    with pytest.raises(ValueError, match="sketch"):
        Sketch.decode(b64encode(data).decode())


def test_text_that_is_no_base64_is_refused() -> None:
    """A ValueError too."""
    with pytest.raises(ValueError, match=r"."):
        Sketch.decode("§")


def test_misuse_is_refused() -> None:
    """Quantiles of nothing, shares beyond 1, and taking away what was never in it, which changes nothing."""
    with pytest.raises(ValueError, match="empty sketch"):
        Sketch().quantiles([0.5])
    with pytest.raises(ValueError, match="from 0 to 1"):
        sketch_of([1.0]).quantiles([1.5])
    for values in ([0.0], [7.0, 1.0], [7.0, 7.0], [-1.0], [7.0, -1.0], [7.0, 0.0]):
        sketch = sketch_of([7.0, 8.0])
        with pytest.raises(ValueError, match="does not contain"):
            sketch.subtract(sketch_of(values))
        assert state(sketch) == state(sketch_of([7.0, 8.0]))
