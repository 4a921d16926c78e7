"""The histograms and timers of a snapshot as columns of numbers, which a newer snapshot replaces as a whole."""

from __future__ import annotations

import math
from bisect import bisect_left
from operator import add, attrgetter, ge, le, sub
from struct import Struct
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tallystream.metric_types import TYPES
from tallystream_aggregator.table.arithmetic.sketch_rows import Grids

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from tallystream import record
    from tallystream_aggregator.table.arithmetic.partial_sums import PartialSum
    from tallystream_aggregator.table.arithmetic.sketch_rows import Grid
    from tallystream_aggregator.table.arithmetic.sketches import MergedSketch
    from tallystream_aggregator.table.arithmetic.values import Stored, Value, Values

_SUM, _MIN, _MAX = range(1, 4)
"""The fields of both types besides the count, by their place among the values."""
_RATES = range(len(TYPES["histogram"]), len(TYPES["timer"]))
"""The further fields of a timer."""
_readers = [attrgetter(field.name) for field in TYPES["timer"]]

_UNKNOWN: dict[int, float] = {_MIN: math.inf, _MAX: -math.inf}
"""What a column has for an extreme that is not known: any value is better."""


class Distributions(msgspec.Struct, array_like=True, gc=False):
    """The histograms and timers of a snapshot without their counts, as arrays in native byte order.

    `grid` and `buckets` are their sketches as a row (`sketch_rows`). `values` has a column of floats for each other
    field. `zeros` has how many zeros each sketch has, 8 bytes each, or nothing if none has any.
    """

    grid: bytes
    buckets: bytes
    values: bytes
    zeros: bytes = b""


class Columns:
    """The columns of distributions of these types: the fields that all have, then the rates of the timers."""

    def __init__(self, kinds: Sequence[str]) -> None:
        self.size = size = len(kinds)
        self.grids = Grids()
        self._timers = [place for place, kind in enumerate(kinds) if kind == "timer"]
        self.number = 3 * size + len(_RATES) * len(self._timers)
        self.sums, self.extremes, self.rates = range(size), range(size, 3 * size), range(3 * size, self.number)
        zeros = Struct(f"{size}q")
        self._pack_zeros, self._unpack_zeros = zeros.pack, zeros.unpack
        self._pack, self._unpack_extremes = Struct(f"{self.number}d").pack, Struct(f"{2 * size}d").unpack_from
        self._nothing = self._pack(*[_UNKNOWN.get(self.field(at)[1], 0.0) for at in range(self.number)])

    def field(self, at: int) -> tuple[int, int]:
        """Return the place of the distribution that has a column, and that of the field among its values."""
        if at < 3 * self.size:
            return at % self.size, _SUM + at // self.size
        index, timer = divmod(at - 3 * self.size, len(self._timers))
        return self._timers[timer], _RATES[index]

    def read(self, metrics: Sequence[record.Histogram]) -> Distributions | None:
        """Return the distributions of a snapshot. Return None if one is refused, or unusual: it needs a row."""
        columns: list[list[Value]] = [list(map(_readers[index], metrics)) for index in (_SUM, _MIN, _MAX)]
        if self._timers:
            timers = [metrics[place] for place in self._timers]
            columns += [list(map(_readers[index], timers)) for index in _RATES]
        return self._from_columns(columns, [one.sketch for one in metrics], [one.count for one in metrics])

    def of_rows(self, rows: Sequence[Stored]) -> Distributions | None:
        """Return the distributions of rows. Return None if one is unusual."""
        columns: Any = [[values[index] for values, _ in rows] for index in (_SUM, _MIN, _MAX)]
        columns += [[rows[place][0][index] for place in self._timers] for index in _RATES]
        return self._from_columns(columns, [sketch for _, sketch in rows], None)

    def _from_columns(
        self, columns: list[list[Value]], sketches: Sequence[record.Sketch | None], counts: list[int] | None
    ) -> Distributions | None:
        values = [value for column in columns for value in column]
        types = set(map(type, values))
        if types != {float}:
            if types != {float, type(None)}:
                return None
            for index, unknown in _UNKNOWN.items():
                columns[index - 1] = [unknown if value is None else value for value in columns[index - 1]]
            values = [value for column in columns for value in column]
            if None in values:
                return None
        row = self.grids.row(sketches, counts)
        if row is None:
            return None
        grid, buckets, zeros = row
        packed_zeros = self._pack_zeros(*zeros) if any(zeros) else b""
        return Distributions(grid.packed, buckets, self._pack(*values), packed_zeros)

    def widens(self, old: Distributions, new: Distributions) -> bool:
        """Tell whether every minimum is as low as before, or lower, and every maximum as high, or higher."""
        size, unpack = self.size, self._unpack_extremes
        before, after = unpack(old.values, 8 * size), unpack(new.values, 8 * size)
        return all(map(le, after[:size], before[:size])) and all(map(ge, after[size:], before[size:]))

    def values(self, of: Distributions, place: int, count: int) -> Values:
        """Return the values of one of them, which has this count."""
        floats, timers = memoryview(of.values).cast("d"), self._timers
        positions = [*range(place, 3 * self.size, self.size)]
        at = bisect_left(timers, place)
        if timers[at : at + 1] == [place]:
            positions += range(3 * self.size + at, len(floats), len(timers))
        return (count, *(_known(floats[position]) for position in positions))

    def sketch(self, of: Distributions, place: int) -> record.Sketch:
        """Return the sketch of one of them."""
        zeros = memoryview(of.zeros).cast("q")[place] if of.zeros else 0
        return self.grids.of(of.grid).sketch(of.buckets, place, zeros)

    def share_grid(self, of: Distributions) -> None:
        """Have one copy of a grid for all that have the same."""
        of.grid = self.grids.of(of.grid).packed

    def zeros(self, of: Distributions | None) -> Sequence[int]:
        """Return how many zeros each sketch has."""
        return self._unpack_zeros(of.zeros) if of is not None and of.zeros else (0,) * self.size

    def table(self, values: Iterable[bytes | None]) -> NDArray[np.float64]:
        """Return the values of several lives as a table. None stands for a life without any."""
        joined = b"".join([self._nothing if one is None else one for one in values])
        return np.frombuffer(joined).reshape(-1, self.number)


def _known(value: float) -> float | None:
    return None if math.isinf(value) else value


class Replacements:
    """Distributions of one layout that are new, replaced or silent, until the sums have all of it, in any order."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._replaced: list[tuple[bytes | None, bytes]] = []
        self._rates: tuple[list[bytes], list[bytes]] = [], []  # what no longer counts, and what does from now on
        # The first replacement, until there is a second: of one alone, sketches take less time than arrays.
        self._single: tuple[Distributions | None, Distributions] | None = None
        self._buckets: dict[Grid, NDArray[np.signedinteger[Any]]] = {}
        self._zeros: Iterable[int] = [0] * columns.size

    def replace(self, old: Distributions | None, new: Distributions, *, living: bool) -> None:
        """Replace the distributions of a life, None for those of a new one."""
        if living:
            self.set_living(new, living=True)
            if old is not None:
                self.set_living(old, living=False)
        self._replaced.append((None if old is None else old.values, new.values))
        if len(self._replaced) == 1:
            self._single = old, new
            return
        if self._single is not None:
            self._add_sketches(*self._single)
            self._single = None
        self._add_sketches(old, new)

    def set_living(self, of: Distributions, *, living: bool) -> None:
        """Mark a life that has these as living or silent. The rates of silent ones do not count."""
        self._rates[living].append(of.values)

    def apply(self, partials: Sequence[PartialSum]) -> None:
        """Apply all of it to the sums of the distributions."""
        columns = self._columns
        if self._replaced:
            was, now = zip(*self._replaced, strict=True)
            self._replace_floats(partials, columns.sums, (one for one in was if one is not None), now)
            extremes = columns.extremes
            old, new = (columns.table(values)[:, extremes.start : extremes.stop] for values in (was, now))
            differing = old != new
            changed = zip(
                differing.nonzero()[1].tolist(), old[differing].tolist(), new[differing].tolist(), strict=True
            )
            for at, before, after in changed:
                place, index = columns.field(extremes[at])
                partials[place].cells[index].replace(_known(before), _known(after))
        self._replace_floats(partials, columns.rates, *self._rates)
        self._apply_sketches([partial.merged for partial in partials if partial.merged is not None])

    def _replace_floats(
        self, partials: Sequence[PartialSum], of: range, old: Iterable[bytes], new: Iterable[bytes]
    ) -> None:
        """Replace the values of these columns, which are sums."""
        if of:
            both = (self._columns.table(values)[:, of.start : of.stop].T.tolist() for values in (old, new))
            for at, removed, added in zip(of, *both, strict=True):
                place, index = self._columns.field(at)
                partials[place].cells[index].replace_floats(removed, added)  # type: ignore[union-attr]  # a sum

    def _add_sketches(self, old: Distributions | None, new: Distributions) -> None:
        grid = self._columns.grids.of(new.grid)
        counts = grid.counts(new.buckets)
        if old is not None and old.grid == new.grid:
            counts -= grid.counts(old.buckets)
        elif old is not None:
            before = self._columns.grids.of(old.grid)
            self._add_counts(before, -before.counts(old.buckets))
        self._add_counts(grid, counts)
        if new.zeros != (b"" if old is None else old.zeros):
            difference = map(sub, self._columns.zeros(new), self._columns.zeros(old))
            self._zeros = list(map(add, self._zeros, difference))

    def _add_counts(self, grid: Grid, counts: NDArray[np.signedinteger[Any]]) -> None:
        if grid in self._buckets:
            self._buckets[grid] += counts
        else:
            self._buckets[grid] = counts

    def _apply_sketches(self, merged: Sequence[MergedSketch]) -> None:
        if self._single is not None:
            old, new = self._single
            for place, one in enumerate(merged):
                before = None if old is None else self._columns.sketch(old, place)
                one.replace(([0], [before]), ([0], [self._columns.sketch(new, place)]))
        for grid, total in self._buckets.items():
            for one, (first, counts) in zip(merged, grid.split(total), strict=True):
                one.add_totals(grid.scale, first, counts)
        for one, zeros in zip(merged, self._zeros, strict=True):
            one.zeros += zeros
