"""The partial sums of one metric over many lives: the arithmetic of rules 4 to 7 and 9, and the stored form.

Each contribution can be subtracted again, so the cost of a step depends on its changes and not on the number of
lives. The partial sums of several shards merge into the sum of the metric (rule 2 of docs/table.md).
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tallystream_aggregator.table.arithmetic.exact_sum import Extreme, Sum
from tallystream_aggregator.table.arithmetic.metric_types import (
    MOMENTARY,
    RATES,
    STORED,
    Totals,
    Value,
    Values,
    maximum,
    minimum,
)
from tallystream_aggregator.table.arithmetic.sketches import SKETCHED, MergedSketch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream.metrics.sketch import Sketch

SumOrExtreme = Sum | Extreme

_SUM, _MIN, _MAX = range(3)
_OPERATIONS = {
    "value": (_SUM, _MIN, _MAX),
    "count": (_SUM,),
    "sum": (_SUM,),
    "min": (_MIN,),
    "max": (_MAX,),
    "start": (_MIN,),
    "position": (_MAX,),
    **dict.fromkeys(RATES, (_SUM,)),
}
_CELLS = {
    kind: tuple(
        (index, operation, field in MOMENTARY) for index, field in enumerate(fields) for operation in _OPERATIONS[field]
    )
    for kind, fields in STORED.items()
}


class Contribution(NamedTuple):
    """The values of one life in a metric. `current` tells whether its momentary values count."""

    values: Values
    current: bool
    sketch: bytes | None = None


class PartialSum:
    """The sums of one metric over some lives.

    `lives` and `instances` count living ones. `forgotten` counts lives whose rows are deleted and whose counts stay in
    the sum (rule 3).
    """

    __slots__ = ("cells", "forgotten", "instances", "kind", "lives", "merged")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.cells: list[SumOrExtreme] = [_cell(operation) for _, operation, _ in _CELLS[kind]]
        self.merged = MergedSketch() if kind in SKETCHED else None
        self.lives = self.instances = self.forgotten = 0

    def replace(self, old: Contribution | None, new: Contribution | None) -> None:
        """Replace the contribution of a life. None stands for a life that does not have the metric."""
        was = old is not None and old.current
        now = new is not None and new.current
        self.lives += now - was
        for cell, (index, _, momentary) in zip(self.cells, _CELLS[self.kind], strict=True):
            before = old.values[index] if old is not None and (was or not momentary) else None
            after = new.values[index] if new is not None and (now or not momentary) else None
            if before is not after:
                cell.replace(before, after)
        if self.merged is not None:
            self.merged.replace(_sketch(old), _sketch(new))

    def add_to_counter(self, difference: int, more: int = 0, living: int = 0) -> None:
        """Add `difference` to a counter, and count `more` lives as its terms, `living` of them living."""
        self.lives += living
        (cell,) = self.cells
        cell.terms += more  # type: ignore[union-attr]  # a counter's only cell is a sum
        cell.integers += difference  # type: ignore[union-attr]

    @property
    def lost(self) -> bool:
        """Whether an extreme has to be found again among all lives."""
        return any(isinstance(cell, Extreme) and cell.lost for cell in self.cells)

    def rescan(self, contributions: Iterable[Contribution], others: Iterable[PartialSum] = ()) -> None:
        """Find lost extremes again among the contributions of all lives and the partial sums `others`."""
        lives, partials = list(contributions), list(others)
        for place, (cell, (index, operation, momentary)) in enumerate(zip(self.cells, _CELLS[self.kind], strict=True)):
            if isinstance(cell, Extreme) and cell.lost:
                column = [contribution.values[index] for contribution in lives if contribution.current or not momentary]
                column += [_read(other.cells[place]) for other in partials]
                cell.set(minimum(column) if operation == _MIN else maximum(column))

    def merge(self, other: PartialSum) -> None:
        """Add the partial sums of other lives of the same metric."""
        self.lives += other.lives
        self.instances += other.instances
        self.forgotten += other.forgotten
        for cell, more in zip(self.cells, other.cells, strict=True):
            if isinstance(cell, Sum) and isinstance(more, Sum):
                cell.merge(more)
            elif isinstance(cell, Extreme) and isinstance(more, Extreme):
                cell.replace(None, more.value)
        if self.merged is not None and other.merged is not None:
            self.merged.merge(other.merged)

    def remove(self, other: PartialSum) -> None:
        """Subtract partial sums that were merged into these, and that have no living lives."""
        self.forgotten -= other.forgotten
        for cell, removed in zip(self.cells, other.cells, strict=True):
            if isinstance(cell, Sum) and isinstance(removed, Sum):
                cell.remove(removed)
        if self.merged is not None and other.merged is not None:
            self.merged.remove(other.merged)
        for cell, removed in zip(self.cells, other.cells, strict=True):
            if isinstance(cell, Extreme) and isinstance(removed, Extreme):
                cell.mark_lost(removed.value)

    def totals(self) -> Totals:
        """Return the summed fields. They may exceed 64 bits, or be infinite."""
        totals: Totals = {}
        cells = iter(self.cells)
        for field in STORED[self.kind]:
            cell = next(cells)
            if field == "value":
                totals |= {"sum": _read(cell), "min": _read(next(cells)), "max": _read(next(cells))}
                totals["number"] = self.lives
            elif field == "count":
                totals[field] = int(_read(cell) or 0)
            else:
                totals[field] = _read(cell)
        return totals

    def sketch(self) -> Sketch | None:
        """Return the sketch of all counted values, or None if a sketch is missing or nothing was counted."""
        return None if self.merged is None else self.merged.total()


def _cell(operation: int) -> SumOrExtreme:
    return Sum() if operation == _SUM else Extreme(operator.lt if operation == _MIN else operator.gt)


def _sketch(contribution: Contribution | None) -> tuple[Value, bytes | None] | None:
    return None if contribution is None else (contribution.values[0], contribution.sketch)


def _read(cell: SumOrExtreme) -> int | float | None:
    return cell.value() if isinstance(cell, Sum) else cell.value


class StoredSum(msgspec.Struct, array_like=True, gc=False):
    """`Sum`, with numbers that may exceed 64 bits in hexadecimal."""

    terms: int
    integers: str
    floats: int
    units: str


class StoredSketch(msgspec.Struct, array_like=True):
    """`MergedSketch`: by (scale, sign), each bucket as (index, count), counts in hexadecimal.

    `missing` is the number of lives that counted values without a sketch.
    """

    bins: list[tuple[int, int, list[tuple[int, str]]]]
    zeros: str
    missing: int


class StoredPartialSum(msgspec.Struct, array_like=True):
    """The partial sums of one metric as they are stored: sums, extremes and bins in the order of the cells."""

    sums: list[StoredSum]
    extremes: list[Value]
    bins: StoredSketch | None = None

    def load(self, kind: str) -> PartialSum:
        """Return the partial sums for a metric of this type, with no living lives."""
        partial = PartialSum(kind)
        sums, extremes = iter(self.sums), iter(self.extremes)
        for cell in partial.cells:
            if isinstance(cell, Sum):
                stored = next(sums)
                cell.merge(Sum(stored.terms, int(stored.integers, 16), stored.floats, int(stored.units, 16)))
            else:
                cell.set(next(extremes))
        if partial.merged is not None and self.bins is not None:
            partial.merged.bins = {
                (scale, sign): {index: int(count, 16) for index, count in found}
                for scale, sign, found in self.bins.bins
            }
            partial.merged.zeros, partial.merged.missing = int(self.bins.zeros, 16), self.bins.missing
        return partial


def store_partial_sum(partial: PartialSum) -> StoredPartialSum:
    """Return partial sums in their stored form, without the numbers of lives."""
    merged, bins = partial.merged, None
    if merged is not None:
        found = [
            (scale, sign, [(index, f"{count:x}") for index, count in sorted(bins_.items())])
            for (scale, sign), bins_ in sorted(merged.bins.items())
        ]
        bins = StoredSketch(found, f"{merged.zeros:x}", merged.missing)
    return StoredPartialSum(
        [StoredSum(c.terms, f"{c.integers:x}", c.floats, f"{c.units:x}") for c in partial.cells if isinstance(c, Sum)],
        [cell.value for cell in partial.cells if isinstance(cell, Extreme)],
        bins,
    )


class ForgottenSums(msgspec.Struct, array_like=True):
    """The number of forgotten lives of one metric, and their sums."""

    lives: int
    stored: StoredPartialSum

    def load(self, kind: str) -> PartialSum:
        """Return the partial sums for a metric of this type, with the number of forgotten lives."""
        partial = self.stored.load(kind)
        partial.forgotten = self.lives
        return partial


def store_forgotten(partial: PartialSum) -> ForgottenSums:
    """Return the partial sums of forgotten lives in their stored form."""
    return ForgottenSums(partial.forgotten, store_partial_sum(partial))


def is_kept(kind: str) -> bool:
    """Tell whether a type has values that stay in the sum when a life is forgotten. A gauge has none."""
    return any(field not in MOMENTARY for field in STORED[kind])
