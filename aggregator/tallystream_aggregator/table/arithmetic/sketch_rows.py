"""The sketches of a snapshot as one row of counts, so that they are checked and added up together."""

from __future__ import annotations

import operator
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tallystream.metrics.sketch import MAX_BUCKETS, RANGES
from tallystream_aggregator.table.arithmetic.sketches import TYPES_BY_WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tallystream import record

_MAX_WIDTH = 4
"""The sum of wider counts may exceed the integers of an array."""

_ROUND = 32
"""Ranges begin and end at multiples of so many buckets, so that they seldom change."""

_SPREAD, _MIN = 4, 512
"""A row has at most `_SPREAD` times the buckets of its sketches, and `_MIN` more for each of them."""

_NO_RANGE = (0, 1)


class _Runs(NamedTuple):
    """The consecutive buckets of sketches. `places` are the sketches to which they belong."""

    scale: int
    width: int
    places: Sequence[int]
    offsets: list[int]
    sizes: list[int]
    counts: list[bytes]


def _runs_of(sketches: Sequence[record.Sketch]) -> _Runs | None:
    """Return the buckets of sketches of one scale without negative values, None for any others."""
    sides = [sketch.positive for sketch in sketches]
    runs = [run for side in sides for run in side]
    scales, widths = {sketch.scale for sketch in sketches}, {run.width for run in runs}
    if len(scales) != 1 or not widths or any(sketch.negative for sketch in sketches):
        return None
    width, counts = max(widths), [run.counts for run in runs]
    if len(widths) > 1:
        to = TYPES_BY_WIDTH[width]
        counts = [np.frombuffer(run.counts, TYPES_BY_WIDTH[run.width]).astype(to).tobytes() for run in runs]
    has_one_each = len(runs) == len(sides) and all(sides)
    places = range(len(sides)) if has_one_each else [place for place, side in enumerate(sides) for _ in side]
    sizes = list(map(len, counts)) if width == 1 else [len(each) // width for each in counts]
    return _Runs(scales.pop(), width, places, [run.offset for run in runs], sizes, counts)


class Grid:
    """The range of buckets that each sketch has in a row, from `firsts` to `ends`."""

    def __init__(self, scale: int, width: int, ranges: Sequence[tuple[int, int]]) -> None:
        self.scale, self.width, self._ranges = scale, width, ranges
        sizes = [end - first for first, end in ranges]
        self._is_valid = max(sizes) <= MAX_BUCKETS and width <= _MAX_WIDTH
        columns = list(accumulate(sizes, initial=0))
        self._begins, self._stops, self.size = columns[:-1], columns[1:], columns[-1]
        self._shifts = [begin - first for begin, (first, _) in zip(columns, ranges, strict=False)]
        self._columns = np.array(self._begins)
        self._type = TYPES_BY_WIDTH[width]

    def row(self, runs: _Runs, most: int) -> bytes | None:
        """Return counts as a row, or None if they do not fit or can't be read, or it has more than `most` buckets."""
        if self.size > most or not self._is_valid:
            return None
        shifts, begins, stops = self._shifts, self._begins, self._stops
        if isinstance(runs.places, list):
            shifts, begins, stops = ([each[place] for place in runs.places] for each in (shifts, begins, stops))
        starts = list(map(operator.add, runs.offsets, shifts))
        ends = list(map(operator.add, starts, runs.sizes))
        if not (all(map(operator.le, begins, starts)) and all(map(operator.le, ends, stops))):
            return None
        gaps = list(map(operator.sub, [*starts, self.size], [0, *ends]))
        if min(gaps) < 0:
            return None
        pieces = [b""] * (2 * len(starts) + 1)
        pieces[::2] = map(bytes, gaps if self.width == 1 else [self.width * gap for gap in gaps])
        pieces[1::2] = runs.counts
        row = b"".join(pieces)
        return row if len(row) == self.size * self.width else None

    def grown(self, runs: _Runs) -> Grid:
        """Return a grid that has the ranges of this one and the buckets of a snapshot."""
        (lowest, highest), ranges = RANGES[runs.scale], list(self._ranges)
        for place, offset, size in zip(runs.places, runs.offsets, runs.sizes, strict=True):
            first, end = offset // _ROUND * _ROUND, -(-(offset + size) // _ROUND) * _ROUND
            if ranges[place] != _NO_RANGE:
                first, end = min(first, ranges[place][0]), max(end, ranges[place][1])
            first = min(max(first, lowest), highest - 1)
            ranges[place] = first, max(min(end, highest), first + 1)
        return Grid(runs.scale, runs.width, ranges)

    def values(self, row: bytes) -> list[int]:
        """Return the sum of the counts of each sketch."""
        whole = np.uint32 if self.width < _MAX_WIDTH else np.uint64  # smaller integers take less time
        counts = np.frombuffer(row, self._type).astype(whole)
        return np.add.reduceat(counts, self._columns).tolist()  # type: ignore[no-any-return]  # of NumPy

    def totals(self, rows: Sequence[bytes]) -> Iterator[tuple[int, NDArray[np.unsignedinteger[Any]]]]:
        """Yield for each sketch its first bucket, and the total counts of all rows from there on."""
        fits = len(rows) << 8 * self.width <= 1 << 32  # sums of smaller integers take half the time
        table = np.frombuffer(b"".join(rows), self._type).reshape(len(rows), -1)
        total = table.sum(axis=0, dtype=np.uint32 if fits else np.uint64)
        for (first, _), begin, stop in zip(self._ranges, self._begins, self._stops, strict=True):
            yield first, total[begin:stop]


class SketchRow(NamedTuple):
    """Sketches, and their counts as a row of a grid."""

    sketches: Sequence[record.Sketch]
    zeros: list[int]
    grid: Grid
    counts: bytes

    def has(self, sketches: Sequence[record.Sketch | None]) -> bool:
        """Tell whether it is that of these sketches, the very same objects."""
        return len(sketches) == len(self.sketches) and all(map(operator.is_, sketches, self.sketches))


class SketchRows:
    """Makes rows of the sketches of snapshots with the same metrics. A grid grows as they need it."""

    def __init__(self) -> None:
        self._grid: Grid | None = None

    def row(self, sketches: Sequence[record.Sketch | None]) -> SketchRow | None:
        """Return sketches as a row, None if one is missing or can't be read, or for unusual ones."""
        found = [sketch for sketch in sketches if sketch is not None]
        try:
            runs = _runs_of(found) if len(found) == len(sketches) else None
        except ValueError:  # the counts are no whole numbers of their width
            return None
        if runs is None:
            return None
        grid, most = self._grid, _SPREAD * sum(runs.sizes) + _MIN * len(found)
        if grid is None or (grid.scale, grid.width) != (runs.scale, runs.width):
            grid = Grid(runs.scale, runs.width, [_NO_RANGE] * len(found))
        counts = grid.row(runs, most)
        if counts is None and grid.size <= most:
            grid = grid.grown(runs)
            counts = grid.row(runs, most)
        if counts is None:
            return None
        self._grid = grid
        return SketchRow(found, [sketch.zero_count for sketch in found], grid, counts)

    def valid_row(self, metrics: Sequence[record.Histogram]) -> SketchRow | None:
        """Return the sketches of metrics as a row if all can be read and have as many values as the metric counts."""
        row = self.row([metric.sketch for metric in metrics])
        if row is None:
            return None
        values = list(map(operator.add, row.grid.values(row.counts), row.zeros))
        return row if values == [metric.count for metric in metrics] else None
