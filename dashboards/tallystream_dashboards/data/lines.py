"""Lines, which are step functions of time, and the data of a chart. Pure; times are epoch milliseconds."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_LINES = 10
"""How many lines a chart draws separately: more colours are hard to distinguish."""
MAX_POINTS = 1_000
"""The maximum number of points of one line, which a browser draws quickly."""
BAND_STEPS = 250
"""The maximum number of steps of a band."""


@dataclass(frozen=True, slots=True)
class Line:
    """A value over time. `values[i]` is valid from `times_ms[i]` (ascending) to the next time; None: no value."""

    label: str
    times_ms: list[int] = field(default_factory=list)
    values: list[float | int | None] = field(default_factory=list)

    @property
    def last(self) -> float | int | None:
        """The newest value."""
        return self.values[-1] if self.values else None

    def at(self, time_ms: int) -> float | int | None:
        """Return the value at `time_ms`; None before the line begins."""
        index = bisect_right(self.times_ms, time_ms) - 1
        return self.values[index] if index >= 0 else None


@dataclass(frozen=True, slots=True)
class Band:
    """The area between the lowest and the highest of `count` lines, which is drawn instead of them."""

    count: int
    times_ms: list[int]
    lows: list[float | int | None]
    highs: list[float | int | None]

    @property
    def label(self) -> str:
        """The text in the legend."""
        return "1 other" if self.count == 1 else f"{self.count:,} others, lowest to highest"


@dataclass(frozen=True, slots=True)
class ChartData:
    """The lines of a chart, with a limited number of points, and the band of the others.

    The time axis covers `period_ms` (start, end). `left_out` is the number of lines that were not read.
    """

    lines: tuple[Line, ...] = ()
    period_ms: tuple[int, int] = (0, 0)
    others: Band | None = None
    left_out: int = 0


def chart_data(
    lines: Sequence[Line], start_ms: int, end_ms: int, *, until_ms: int | None = None, left_out: int = 0
) -> ChartData:
    """Return a chart of the period from `start_ms` to `end_ms`: the first ten lines, and the band of the others.

    Each line is continued to `until_ms`. If that is None, a line ends at its last point, and one that ended before the
    period is left out.
    """
    clipped = []
    for line in lines:
        last_ms = line.times_ms[-1] if line.times_ms else 0
        if until_ms is not None or last_ms >= start_ms:
            clipped.append(clip(line, start_ms, max(start_ms, last_ms if until_ms is None else until_ms)))
    clipped = [line for line in clipped if line.times_ms]
    first, others = clipped[:MAX_LINES], clipped[MAX_LINES:]
    drawn = tuple(downsample(line) for line in first)
    return ChartData(drawn, (start_ms, end_ms), band(others) if others else None, left_out)


def band(lines: Sequence[Line]) -> Band:
    """Return the lowest and the highest value of the lines in each step of time. Each line must have points."""
    begin, end = min(line.times_ms[0] for line in lines), max(line.times_ms[-1] for line in lines)
    steps = min(BAND_STEPS, max(1, end - begin))
    edges = [begin + step * (end - begin) // steps for step in range(steps + 1)]
    values = [_values(lines, a, b) for a, b in pairwise(edges)]
    # The last edge has its own point, so that the area ends where the lines end.
    values.append(_values(lines, end, end + 1))
    lows, highs = [min(some, default=None) for some in values], [max(some, default=None) for some in values]
    return Band(len(lines), edges, lows, highs)


def _values(lines: Sequence[Line], begin: int, end: int) -> list[float | int]:
    """Return the values of the lines at `begin` <= time < `end`. A line has none before its first or after its last."""
    values: list[float | int] = []
    for line in lines:
        if line.times_ms[-1] >= begin:
            first, last = max(0, bisect_right(line.times_ms, begin) - 1), bisect_left(line.times_ms, end)
            values += [value for value in line.values[first:last] if value is not None]
    return values


def clip(line: Line, start_ms: int, end_ms: int) -> Line:
    """Return the line from `start_ms` to `end_ms`, with a point for the value at each end."""
    first, last = bisect_right(line.times_ms, start_ms), bisect_right(line.times_ms, end_ms)
    times, values = line.times_ms[first:last], line.values[first:last]
    if first:
        times, values = [start_ms, *times], [line.values[first - 1], *values]
    if times and times[-1] < end_ms:
        times, values = [*times, end_ms], [*values, values[-1]]
    return Line(line.label, times, values)


def downsample(line: Line, limit: int = MAX_POINTS) -> Line:
    """Return at most `limit` (4 or more) of the line's points: the first, the last, and each section's low and high.

    A section with a gap keeps the gap instead of its low.
    """
    count = len(line.times_ms)
    if count <= limit:
        return line
    sections = (limit - 2) // 2
    kept = {0, count - 1}
    for section in range(sections):
        # Integer arithmetic: the sections are adjacent and cover 1 … count - 2.
        begin, end = 1 + section * (count - 2) // sections, 1 + (section + 1) * (count - 2) // sections
        kept |= _extremes(line.values, begin, end)
    indexes = sorted(kept)
    return Line(line.label, [line.times_ms[i] for i in indexes], [line.values[i] for i in indexes])


def _extremes(values: Sequence[float | None], begin: int, end: int) -> set[int]:
    known = [i for i in range(begin, end) if values[i] is not None]
    gap = next((i for i in range(begin, end) if values[i] is None), None)
    if not known:
        return set() if gap is None else {gap}
    high = max(known, key=lambda i: values[i] or 0)
    return {high, min(known, key=lambda i: values[i] or 0) if gap is None else gap}


def rate(line: Line, *, window_ms: int, at_ms: int) -> float | None:
    """Return the growth a second in the `window_ms` before `at_ms`, or since the line began if that is later.

    Return None if that is less than a second, if the value fell, or if the growth is beyond the range of floats.
    """
    if not line.times_ms:
        return None
    begin = max(at_ms - window_ms, line.times_ms[0])
    before, now = line.at(begin), line.at(at_ms)
    if before is None or now is None or at_ms - begin < 1000 or now < before:
        return None
    grown = (now - before) / ((at_ms - begin) / 1000)
    return grown if isfinite(grown) else None
