"""Changes of the same metrics in many snapshots, which wait until they are applied to the sums together."""

from __future__ import annotations

import operator
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream_aggregator.table.arithmetic.partial_sums import Change, PartialSum
    from tallystream_aggregator.table.arithmetic.sketch_rows import Grid, SketchRow
    from tallystream_aggregator.table.arithmetic.values import Stored, Values


class Waiting:
    """The changes of the same metrics in snapshots of which all have rows of sketches, or none has.

    A single snapshot, and those without rows, are applied metric by metric.
    """

    def __init__(self) -> None:
        self._single: list[Iterable[Change]] = []
        self._first: tuple[Sequence[Stored], Sequence[Stored], tuple[SketchRow, SketchRow]] | None = None
        self._old: list[list[Values]] = []
        self._new: list[list[Values]] = []
        self._zeros: list[Iterable[int]] = []
        self._rows: defaultdict[tuple[Grid, bool], list[bytes]] = defaultdict(list)

    def add(self, old: Sequence[Stored], new: Sequence[Stored], sketches: tuple[SketchRow, SketchRow] | None) -> None:
        """Add what a snapshot changes. `sketches` are those of all its metrics, before and after."""
        if sketches is None:
            self._single.append(zip(old, new, strict=True))
        elif self._first is None:
            self._first = old, new, sketches
        else:
            if not self._old:
                self._add(*self._first)
            self._add(old, new, sketches)

    def _add(self, old: Sequence[Stored], new: Sequence[Stored], sketches: tuple[SketchRow, SketchRow]) -> None:
        self._old.append([values for values, _ in old])
        self._new.append([values for values, _ in new])
        before, after = sketches
        self._rows[before.grid, True].append(before.counts)
        self._rows[after.grid, False].append(after.counts)
        if before.zeros != after.zeros:
            self._zeros.append(map(operator.sub, after.zeros, before.zeros))

    def apply(self, partials: list[PartialSum]) -> None:
        """Apply the changes to the sums of the metrics."""
        if self._first is not None and not self._old:
            self._single.append(zip(*self._first[:2], strict=True))
        for partial, changes in zip(partials, zip(*self._single, strict=True), strict=False):
            partial.replace_all(changes)
        both = (zip(*values, strict=True) for values in (self._old, self._new))
        for partial, old, new in zip(partials, *both, strict=False):
            partial.replace_values(old, new)
        merged = [partial.merged for partial in partials if partial.merged is not None]
        for (grid, is_old), rows in self._rows.items():
            for one, (first, counts) in zip(merged, grid.totals(rows), strict=True):
                one.add_totals(grid.scale, first, counts, subtract=is_old)
        for one, zeros in zip(merged, zip(*self._zeros, strict=True), strict=False):
            one.zeros += sum(zeros)
