"""The sketches of a snapshot as one row of counts, so that they are checked and added up together."""

from __future__ import annotations

import operator
from array import array
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tallystream import record
from tallystream.metrics.sketch import MAX_BUCKETS, RANGES, without_gaps
from tallystream_aggregator.table.arithmetic.sketches import TYPES_BY_WIDTH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

_MAX_WIDTH = 4
"""The sum of wider counts may exceed the integers of an array."""

_ROUND = 16
_SPARE = 8
"""A range that grows has at least `_SPARE` buckets to spare, and ends at a multiple of `_ROUND`: so it seldom grows."""

_SPREAD, _MIN = 4, 512
"""A row has at most `_SPREAD` times the buckets of its sketches, and `_MIN` more for each of them."""

_NO_RANGE = (0, 1)

_MAX_GRIDS = 4
"""So many grids of a layout are kept. Most often, all snapshots have the newest one."""

_INTEGERS = "i"
"""The type of a packed grid, of 4 bytes."""


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
    """The range of buckets that each sketch has in a row. `packed` is the grid as bytes."""

    def __init__(self, scale: int, width: int, ranges: Sequence[tuple[int, int]]) -> None:
        self.scale, self.width = scale, width
        self._firsts = [first for first, _ in ranges]
        self.packed = array(_INTEGERS, [scale, width, *chain.from_iterable(ranges)]).tobytes()
        sizes = [end - first for first, end in ranges]
        self._is_valid = max(sizes) <= MAX_BUCKETS and width <= _MAX_WIDTH
        columns = list(accumulate(sizes, initial=0))
        self._begins, self._stops, self.size = columns[:-1], columns[1:], columns[-1]
        self._shifts = list(map(operator.sub, self._begins, self._firsts))
        self._columns = np.array(self._begins)
        self._type = TYPES_BY_WIDTH[width]
        self._wide = np.dtype(np.int32 if width == 1 else np.int64)  # smaller integers take less time

    @classmethod
    def of(cls, packed: bytes) -> Grid:
        """Return the grid of its bytes."""
        scale, width, *ends = array(_INTEGERS, packed)
        return cls(scale, width, list(zip(ends[::2], ends[1::2], strict=True)))

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
        (lowest, highest), ranges = RANGES[runs.scale], self._ranges()
        for place, offset, size in zip(runs.places, runs.offsets, runs.sizes, strict=True):
            first, end = ranges[place]
            if (first, end) == _NO_RANGE:
                first, end = offset, offset + size
            if offset <= first:
                first = min(max((offset - _SPARE) // _ROUND * _ROUND, lowest), highest - 1)
            if offset + size >= end:
                end = max(min(-(-(offset + size + _SPARE) // _ROUND) * _ROUND, highest), first + 1)
            ranges[place] = first, end
        return Grid(runs.scale, runs.width, ranges)

    def _ranges(self) -> list[tuple[int, int]]:
        return list(zip(self._firsts, map(operator.sub, self._stops, self._shifts), strict=True))

    def counts(self, row: bytes) -> NDArray[np.signedinteger[Any]]:
        """Return a row as an array, which can add up so many of them as may wait."""
        return np.frombuffer(row, self._type).astype(self._wide)

    def values(self, row: bytes) -> list[int]:
        """Return the sum of the counts of each sketch."""
        counts = np.frombuffer(row, self._type)
        return np.add.reduceat(counts, self._columns, dtype=self._wide).tolist()  # type: ignore[no-any-return]  # of NumPy

    def split(self, counts: NDArray[np.signedinteger[Any]]) -> Iterator[tuple[int, NDArray[np.uint64]]]:
        """Yield for each sketch its first bucket, and what an array of counts has from there on, modulo 2**64."""
        whole = counts.astype(np.int64).view(np.uint64)
        for first, begin, stop in zip(self._firsts, self._begins, self._stops, strict=True):
            yield first, whole[begin:stop]

    def sketch(self, row: bytes, place: int, zeros: int) -> record.Sketch:
        """Return one of the sketches, which has so many zeros."""
        data = row[self._begins[place] * self.width : self._stops[place] * self.width]
        width = self.width
        if width > 1:
            counts = np.frombuffer(data, self._type)
            largest = int(counts.max())
            width = next(width for width in TYPES_BY_WIDTH if not largest >> 8 * width)
            data = counts.astype(TYPES_BY_WIDTH[width]).tobytes()
        end = -(-len(data.rstrip(b"\0")) // width)
        skipped = (len(data) - len(data.lstrip(b"\0"))) // width
        filled, first = data[skipped * width : end * width], self._firsts[place] + skipped
        positive = without_gaps(first, filled, width) if filled else ()  # type: ignore[arg-type]  # 1, 2 or 4
        return record.Sketch(scale=self.scale, zero_count=zeros, positive=positive)


class Grids:
    """The grids of snapshots with the same metrics. The newest one grows as they need it."""

    def __init__(self) -> None:
        self._newest: dict[tuple[int, int], Grid] = {}  # by scale and width
        self._known: dict[bytes, Grid] = {}

    def of(self, packed: bytes) -> Grid:
        """Return the grid of its bytes."""
        return self._known.get(packed) or self._add(Grid.of(packed))

    def row(
        self, sketches: Sequence[record.Sketch | None], counts: Sequence[int] | None = None
    ) -> tuple[Grid, bytes, list[int]] | None:
        """Return the grid of sketches, their row and their numbers of zeros. Return None for unusual ones.

        With `counts`, return None also if one can't be read, or has not that many values.
        """
        found = [sketch for sketch in sketches if sketch is not None]
        try:
            runs = _runs_of(found) if len(found) == len(sketches) else None
        except ValueError:  # the counts are no whole numbers of their width
            return None
        if runs is None:
            return None
        key, most = (runs.scale, runs.width), _SPREAD * sum(runs.sizes) + _MIN * len(found)
        newest = self._newest.get(key)
        grid = newest or Grid(runs.scale, runs.width, [_NO_RANGE] * len(found))
        row = grid.row(runs, most)
        if row is None and grid.size <= most:
            grid = grid.grown(runs)
            row = grid.row(runs, most)
        if row is None:
            return None
        zeros = [sketch.zero_count for sketch in found]
        if counts is not None and list(map(operator.add, grid.values(row), zeros)) != counts:
            return None
        if grid is not newest:
            if newest is None and len(self._newest) >= _MAX_GRIDS:
                self._newest = {}
            self._newest[key] = self._add(grid)
        return grid, row, zeros

    def _add(self, grid: Grid) -> Grid:
        if len(self._known) >= _MAX_GRIDS:
            del self._known[next(iter(self._known))]
        self._known[grid.packed] = grid
        return grid
