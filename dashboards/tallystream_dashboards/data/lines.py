"""Lines, which are step functions of time, and the data of a chart. Pure; times are epoch milliseconds."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

RANGES = {"5m": 300, "15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800}
"""The lengths of a period to choose from, in seconds."""
MAX_LINES = 10
"""How many lines a chart draws separately: more colours are hard to distinguish."""
MIN_PERIOD_MS = 60_000
"""How much a time axis covers at least, in ms."""
MAX_POINTS = 1_000
"""The maximum number of points of one line, which a browser draws quickly."""


class Period(NamedTuple):
    """The period that is shown, and the time before which points are read (epoch ms)."""

    start_ms: int
    end_ms: int
    until_ms: int


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
class ChartData:
    """The lines of a chart, with a limited number of points.

    The time axis covers `period_ms` (start, end). `left_out` is the number of lines that are not drawn. `began` says
    that none of the lines has a value from before the period.
    """

    lines: tuple[Line, ...] = ()
    period_ms: tuple[int, int] = (0, 0)
    left_out: int = 0
    began: bool = False


def chart_data(
    lines: Sequence[Line], start_ms: int, end_ms: int, *, until_ms: int | None = None, left_out: int = 0
) -> ChartData:
    """Return a chart of the first ten lines in the period from `start_ms` to `end_ms`.

    Each line is continued to `until_ms`. If that is None, a line ends at its last point, and one that ended before the
    period is left out.
    """
    clipped = []
    for line in lines:
        last_ms = line.times_ms[-1] if line.times_ms else 0
        if until_ms is not None or last_ms >= start_ms:
            clipped.append(clip(line, start_ms, max(start_ms, last_ms if until_ms is None else until_ms)))
    clipped = [line for line in clipped if line.times_ms]
    drawn = tuple(downsample(line) for line in clipped[:MAX_LINES])
    began = all(line.times_ms[0] > start_ms for line in drawn)
    return ChartData(drawn, (start_ms, end_ms), left_out + len(clipped) - len(drawn), began)


def fitted(*charts: ChartData) -> list[ChartData]:
    """Return the charts of a view with one period, which begins where the first of their lines does."""
    firsts = [line.times_ms[0] for chart in charts for line in chart.lines]
    start_ms, end_ms = charts[0].period_ms
    begin_ms = max(start_ms, min(*firsts, end_ms - MIN_PERIOD_MS)) if firsts else start_ms
    return [replace(one, period_ms=(begin_ms, end_ms)) for one in charts]


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


def total(lines: Sequence[Line], combined: Callable[[Iterable[float | int]], float | int] = sum) -> Line:
    """Return the sum of the lines, or what is `combined`, at each time at which one of them changes.

    A line counts as 0 before it begins.
    """
    times = sorted({at_ms for line in lines for at_ms in line.times_ms})
    return Line("total", times, [combined(line.at(at_ms) or 0 for line in lines) for at_ms in times])


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
