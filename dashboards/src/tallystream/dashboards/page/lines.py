"""Lines to draw: step functions of time, and what can be worked out from them. Pure; times are epoch milliseconds."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_LINES = 20
"""How many lines a chart holds before nobody can tell them apart."""
MAX_POINTS = 1_000
"""What a browser draws quickly, and more than a screen has columns for one line."""


@dataclass(frozen=True, slots=True)
class Line:
    """A value over time: `values[i]` holds from `times_ms[i]` (ascending) to the next; None means: none."""

    label: str
    times_ms: list[int] = field(default_factory=list)
    values: list[float | int | None] = field(default_factory=list)

    @property
    def last(self) -> float | int | None:
        """The newest value."""
        return self.values[-1] if self.values else None

    def at(self, time_ms: int) -> float | int | None:
        """Return the value that holds at `time_ms`: None before the line begins."""
        index = bisect_right(self.times_ms, time_ms) - 1
        return self.values[index] if index >= 0 else None


@dataclass(frozen=True, slots=True)
class Drawn:
    """Lines for a chart, thinned out; `left_out` counts those that there was no room for."""

    lines: tuple[Line, ...] = ()
    left_out: int = 0


def draw(lines: Sequence[Line], start_ms: int, until_ms: int | None) -> Drawn:
    """Return what of the lines fits into a chart that begins at `start_ms`.

    Each is drawn on to `until_ms`, None: to its own last point.
    """
    clipped = (
        clip(line, start_ms, max(start_ms, until_ms or (line.times_ms[-1] if line.times_ms else 0)))
        for line in lines[:MAX_LINES]
    )
    return Drawn(tuple(thin(line) for line in clipped if line.times_ms), max(0, len(lines) - MAX_LINES))


def clip(line: Line, start_ms: int, end_ms: int) -> Line:
    """Return the line from `start_ms` to `end_ms`: the value that held at either end is drawn there."""
    first, last = bisect_right(line.times_ms, start_ms), bisect_right(line.times_ms, end_ms)
    times, values = line.times_ms[first:last], line.values[first:last]
    if first:
        times, values = [start_ms, *times], [line.values[first - 1], *values]
    if times and times[-1] < end_ms:
        times, values = [*times, end_ms], [*values, values[-1]]
    return Line(line.label, times, values)


def thin(line: Line, limit: int = MAX_POINTS) -> Line:
    """Return at most `limit` (4 or more) of the line's points: the first, the last, and each stretch's low and high.

    No peak is lost, and the last value, which people read, is the true one. A stretch with a gap keeps the gap.
    """
    count = len(line.times_ms)
    if count <= limit:
        return line
    buckets = (limit - 2) // 2
    kept = {0, count - 1}
    for bucket in range(buckets):
        # Whole numbers only: buckets meet exactly and cover 1 … count - 2.
        begin, end = 1 + bucket * (count - 2) // buckets, 1 + (bucket + 1) * (count - 2) // buckets
        kept |= _extremes(line.values, begin, end)
    chosen = sorted(kept)
    return Line(line.label, [line.times_ms[i] for i in chosen], [line.values[i] for i in chosen])


def _extremes(values: Sequence[float | None], begin: int, end: int) -> set[int]:
    known = [i for i in range(begin, end) if values[i] is not None]
    gap = next((i for i in range(begin, end) if values[i] is None), None)
    if not known:
        return set() if gap is None else {gap}
    high = max(known, key=lambda i: values[i] or 0)
    return {high, min(known, key=lambda i: values[i] or 0) if gap is None else gap}


def rate(line: Line, *, window_ms: int, at_ms: int) -> float | None:
    """Return the growth a second over the last `window_ms` before `at_ms`, or over what there is of them.

    None where less than a second is known, or where the value fell: then it is not a rate.
    """
    if not line.times_ms:
        return None
    begin = max(at_ms - window_ms, line.times_ms[0])
    before, now = line.at(begin), line.at(at_ms)
    if before is None or now is None or at_ms - begin < 1000 or now < before:
        return None
    return (now - before) * 1000 / (at_ms - begin)
