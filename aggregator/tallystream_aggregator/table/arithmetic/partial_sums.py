"""The partial sums of one metric over many lives: the arithmetic of rules 4 to 7 and 9, and the stored form.

Each contribution can be subtracted again, so the cost of a batch depends on its changes and not on the number of
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
from tallystream_aggregator.table.arithmetic.sketches import SKETCHED, Merged

if TYPE_CHECKING:
    from collections.abc import Iterable

Cell = Sum | Extreme

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


class Partial:
    """The sum of one metric over lives.

    `lives` and `instances` count living ones. `forgotten` counts lives whose rows are deleted and whose counts stay in
    the sum (rule 3).
    """

    __slots__ = ("cells", "forgotten", "instances", "kind", "lives", "merged")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.cells: list[Cell] = [_cell(operation) for _, operation, _ in _CELLS[kind]]
        self.merged = Merged() if kind in SKETCHED else None
        self.lives = self.instances = self.forgotten = 0

    def replace(self, old: Contribution | None, new: Contribution | None) -> None:
        """Replace the contribution of a life. None stands for a life that has no part in the metric."""
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

    def grow(self, difference: int, more: int = 0, living: int = 0) -> None:
        """Add `difference` to a counter, and `more` lives to its terms, `living` of them living."""
        self.lives += living
        (cell,) = self.cells
        cell.known += more  # type: ignore[union-attr]  # a counter's only cell is a sum
        cell.whole += difference  # type: ignore[union-attr]

    def subtract(self, contribution: Contribution) -> None:
        """Subtract a contribution that moves to other partial sums. Extremes stay: the total has them anyway."""
        for cell, (index, _, momentary) in zip(self.cells, _CELLS[self.kind], strict=True):
            if isinstance(cell, Sum) and not momentary:
                cell.replace(contribution.values[index], None)
        if self.merged is not None:
            self.merged.replace(_sketch(contribution), None)

    def lose(self, contribution: Contribution) -> None:
        """Mark the extremes that a removed contribution may have held as lost."""
        for cell, (index, _, momentary) in zip(self.cells, _CELLS[self.kind], strict=True):
            if isinstance(cell, Extreme) and not momentary:
                cell.lose(contribution.values[index])

    @property
    def lost(self) -> bool:
        """Whether an extreme has to be found again among all lives."""
        return any(isinstance(cell, Extreme) and cell.lost for cell in self.cells)

    @property
    def lost_lasting(self) -> bool:
        """Whether a lost extreme is one of a histogram, a timer or a position, whose lives on disk count too."""
        plans = _CELLS[self.kind]
        return any(isinstance(c, Extreme) and c.lost and not m for c, (_, _, m) in zip(self.cells, plans, strict=True))

    def rescan(self, contributions: Iterable[Contribution], others: Iterable[Partial] = ()) -> None:
        """Find lost extremes again among the contributions of all lives and the partial sums `others`."""
        known, partials = list(contributions), list(others)
        for place, (cell, (index, operation, momentary)) in enumerate(zip(self.cells, _CELLS[self.kind], strict=True)):
            if isinstance(cell, Extreme) and cell.lost:
                column = [contribution.values[index] for contribution in known if contribution.current or not momentary]
                column += [_read(other.cells[place]) for other in partials]
                cell.found(minimum(column) if operation == _MIN else maximum(column))

    def merge(self, other: Partial) -> None:
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

    def remove(self, other: Partial) -> None:
        """Subtract partial sums that were merged into these, and that have no living lives."""
        self.forgotten -= other.forgotten
        for cell, gone in zip(self.cells, other.cells, strict=True):
            if isinstance(cell, Sum) and isinstance(gone, Sum):
                cell.remove(gone)
        if self.merged is not None and other.merged is not None:
            self.merged.unmerge(other.merged)
        self.lose_extremes(other)

    def lose_extremes(self, other: Partial) -> None:
        """Mark the extremes that removed partial sums may have held as lost."""
        for cell, gone in zip(self.cells, other.cells, strict=True):
            if isinstance(cell, Extreme) and isinstance(gone, Extreme):
                cell.lose(gone.value)

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

    def quantiles(self) -> Totals:
        """Return p50 to p999 of all counted values, or nothing if a sketch is missing."""
        return {} if self.merged is None else self.merged.quantiles()


def _cell(operation: int) -> Cell:
    return Sum() if operation == _SUM else Extreme(operator.lt if operation == _MIN else operator.gt)


def _sketch(contribution: Contribution | None) -> tuple[Value, bytes | None] | None:
    return None if contribution is None else (contribution.values[0], contribution.sketch)


def _read(cell: Cell) -> int | float | None:
    return cell.value() if isinstance(cell, Sum) else cell.value


class SumCell(msgspec.Struct, array_like=True, gc=False):
    """`Sum`, with numbers that may exceed 64 bits in hexadecimal."""

    known: int
    whole: str
    floats: int
    units: str


class StoredBins(msgspec.Struct, array_like=True):
    """`Merged`: by (scale, sign), each bucket as (index, count), counts in hexadecimal.

    `missing` is the number of lives that counted values without a sketch.
    """

    bins: list[tuple[int, int, list[tuple[int, str]]]]
    zeros: str
    missing: int


class Held(msgspec.Struct, array_like=True):
    """The partial sums of one metric as they are stored: sums, extremes and bins in the order of the cells.

    `lost` has the places of extremes that are only bounds, because the life that held one was removed.
    """

    sums: list[SumCell]
    extremes: list[Value]
    bins: StoredBins | None = None
    lost: list[int] = []

    def partial(self, kind: str) -> Partial:
        """Return the partial sums for a metric of this type, with no living lives."""
        partial = Partial(kind)
        sums, extremes = iter(self.sums), iter(self.extremes)
        for place, cell in enumerate(partial.cells):
            if isinstance(cell, Sum):
                held = next(sums)
                cell.merge(Sum(held.known, int(held.whole, 16), held.floats, int(held.units, 16)))
            else:
                cell.found(next(extremes))
                cell.lost = place in self.lost
        if partial.merged is not None and self.bins is not None:
            partial.merged.bins = {
                (scale, sign): {index: int(count, 16) for index, count in found}
                for scale, sign, found in self.bins.bins
            }
            partial.merged.zeros, partial.merged.missing = int(self.bins.zeros, 16), self.bins.missing
        return partial


def hold(partial: Partial) -> Held:
    """Return partial sums in their stored form, without the numbers of lives."""
    merged, bins = partial.merged, None
    if merged is not None:
        found = [
            (scale, sign, [(index, f"{count:x}") for index, count in sorted(held.items())])
            for (scale, sign), held in sorted(merged.bins.items())
        ]
        bins = StoredBins(found, f"{merged.zeros:x}", merged.missing)
    return Held(
        [SumCell(c.known, f"{c.whole:x}", c.floats, f"{c.units:x}") for c in partial.cells if isinstance(c, Sum)],
        [cell.value for cell in partial.cells if isinstance(cell, Extreme)],
        bins,
        [place for place, cell in enumerate(partial.cells) if isinstance(cell, Extreme) and cell.lost],
    )


class ForgottenSums(msgspec.Struct, array_like=True):
    """The number of forgotten lives of one metric, their sums, and the last list of lives that they include."""

    lives: int
    held: Held
    list_id: int = 0


def is_kept(kind: str) -> bool:
    """Tell whether a type has values that stay in the sum when a life is forgotten. A gauge has none."""
    return any(field not in MOMENTARY for field in STORED[kind])


def merge_forgotten(
    kind: str, forgotten_sums: ForgottenSums | None, contribution: Contribution, number: int
) -> ForgottenSums:
    """Return the sums of forgotten lives with one more life, of the list `number`."""
    partial = forgotten_sums.held.partial(kind) if forgotten_sums is not None else Partial(kind)
    partial.replace(None, contribution._replace(current=False))
    lives, last = (forgotten_sums.lives, forgotten_sums.list_id) if forgotten_sums is not None else (0, 0)
    return ForgottenSums(lives + 1, hold(partial), max(last, number))
