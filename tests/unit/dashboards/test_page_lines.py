"""Lines: a clipped or downsampled line agrees with the values of the original."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystream_dashboards.data.lines import Line, clip, downsample, rate

VALUES = st.one_of(st.none(), st.integers(-1000, 1000))


@st.composite
def some_lines(draw: st.DrawFn, *, longest: int = 60) -> Line:
    times = sorted(draw(st.sets(st.integers(0, 10_000), max_size=longest)))
    return Line("x", times, draw(st.lists(VALUES, min_size=len(times), max_size=len(times))))


@given(some_lines(), st.integers(0, 10_000), st.integers(0, 10_000))
def test_clipping_keeps_every_value_inside(line: Line, a: int, b: int) -> None:
    """At every moment of the period the clipped line has the value of the original."""
    start, end = min(a, b), max(a, b)
    clipped = clip(line, start, end)
    assert all(start <= t <= end for t in clipped.times_ms)
    for moment in {start, end, (start + end) // 2, *[t for t in line.times_ms if start <= t <= end]}:
        assert clipped.at(moment) == line.at(moment)


@given(some_lines(longest=300), st.integers(4, 60))
def test_downsampling_keeps_ends_and_extremes_within_the_limit(line: Line, limit: int) -> None:
    """A downsampled line has at most `limit` points, in order, with both ends, the highest and the lowest."""
    downsampled = downsample(line, limit)
    pairs, kept = (
        list(zip(line.times_ms, line.values, strict=True)),
        list(zip(downsampled.times_ms, downsampled.values, strict=True)),
    )
    assert len(kept) <= limit
    assert kept == [pair for pair in pairs if pair in set(kept)]
    if pairs:
        assert (kept[0], kept[-1]) == (pairs[0], pairs[-1])
    known = [value for value in line.values if value is not None]
    if known:
        assert max(known) in downsampled.values
    if known and None not in line.values:
        assert min(known) in downsampled.values


def test_downsampling_keeps_a_gap() -> None:
    """A moment without a value is a gap in the downsampled line, too."""
    values: list[float | int | None] = [1] * 1000
    values[500] = None
    assert None in downsample(Line("x", list(range(1000)), values), 100).values


def test_a_rate_is_growth_by_time() -> None:
    """100 in 50 s is 2 a second. If the line is shorter than the window, the rate is that of the line."""
    line = Line("x", [0, 30_000, 50_000], [0, 10, 100])
    assert rate(line, window_ms=60_000, at_ms=50_000) == 2.0
    assert rate(line, window_ms=20_000, at_ms=50_000) == 4.5


def test_a_rate_is_finite() -> None:
    """A float counter may have any finite value. A growth that is no float has no rate."""
    assert rate(Line("x", [0, 30_000], [0.0, 1.5e308]), window_ms=60_000, at_ms=30_000) == 5e306
    assert rate(Line("x", [0, 30_000], [-1e308, 1.5e308]), window_ms=60_000, at_ms=30_000) is None


def test_a_rate_may_be_unknown() -> None:
    """An empty line, a single moment, a gap and a fall have no rate."""
    assert rate(Line("x"), window_ms=1, at_ms=1) is None
    assert rate(Line("x", [5], [1]), window_ms=60_000, at_ms=5) is None
    assert rate(Line("x", [0, 9000], [None, 1]), window_ms=60_000, at_ms=9000) is None
    assert rate(Line("x", [0, 9000], [5, 1]), window_ms=60_000, at_ms=9000) is None
