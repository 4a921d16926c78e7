"""What many lives of one metric add up to: the arithmetic of rules 4 to 7 and 9, and how it is stored.

Each value can be taken out again, so a batch costs what it changes, whatever the number of lives. What shards of
instances have of one metric merges into the metric's sum (rule 2 of docs/table.md knows no shards).
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
    greatest,
    least,
)
from tallystream_aggregator.table.arithmetic.sketches import SKETCHED, Merged

if TYPE_CHECKING:
    from collections.abc import Iterable

Cell = Sum | Extreme

_SUM, _LEAST, _GREATEST = range(3)
_OPERATIONS = {
    "value": (_SUM, _LEAST, _GREATEST),
    "count": (_SUM,),
    "sum": (_SUM,),
    "min": (_LEAST,),
    "max": (_GREATEST,),
    "start": (_LEAST,),
    "position": (_GREATEST,),
    **dict.fromkeys(RATES, (_SUM,)),
}
_PLANS = {
    kind: tuple(
        (index, operation, field in MOMENTARY) for index, field in enumerate(fields) for operation in _OPERATIONS[field]
    )
    for kind, fields in STORED.items()
}


class Share(NamedTuple):
    """What one life has of a metric; `current` tells whether its momentary values count."""

    values: Values
    current: bool
    sketch: bytes | None = None


class Partial:
    """The sum of one metric over lives.

    `lives` and `instances` count the living, `forgotten` those whose rows are gone (rule 3): they stay in every sum.
    """

    __slots__ = ("cells", "forgotten", "instances", "kind", "lives", "merged")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.cells: list[Cell] = [_cell(operation) for _, operation, _ in _PLANS[kind]]
        self.merged = Merged() if kind in SKETCHED else None
        self.lives = self.instances = self.forgotten = 0

    def replace(self, old: Share | None, new: Share | None) -> None:
        """Let one life's share go and another one, or a newer one of the same life, take its place."""
        was = old is not None and old.current
        now = new is not None and new.current
        self.lives += now - was
        for cell, (index, _, momentary) in zip(self.cells, _PLANS[self.kind], strict=True):
            before = old.values[index] if old is not None and (was or not momentary) else None
            after = new.values[index] if new is not None and (now or not momentary) else None
            if before is not after:
                cell.replace(before, after)
        if self.merged is not None:
            self.merged.replace(_sketch(old), _sketch(new))

    def grow(self, difference: int, more: int = 0, living: int = 0) -> None:
        """Let a counter of lives grow by so much in all, and have so many more lives, `living` of them living."""
        self.lives += living
        (cell,) = self.cells
        cell.known += more  # type: ignore[union-attr]  # a counter's only cell is a sum
        cell.whole += difference  # type: ignore[union-attr]

    def take_back(self, share: Share) -> None:
        """Let a share go that other partial sums take over: extremes stay, as bounds that those have too."""
        for cell, (index, _, momentary) in zip(self.cells, _PLANS[self.kind], strict=True):
            if isinstance(cell, Sum) and not momentary:
                cell.replace(share.values[index], None)
        if self.merged is not None:
            self.merged.replace(_sketch(share), None)

    def lose(self, share: Share) -> None:
        """Note that a life's share is taken out of the sums: extremes that it may have held are lost."""
        for cell, (index, _, momentary) in zip(self.cells, _PLANS[self.kind], strict=True):
            if isinstance(cell, Extreme) and not momentary:
                cell.lose(share.values[index])

    @property
    def lost(self) -> bool:
        """Whether an extreme has to be looked for among all lives."""
        return any(isinstance(cell, Extreme) and cell.lost for cell in self.cells)

    @property
    def lost_lasting(self) -> bool:
        """Whether one of the lost extremes is a lasting one: of a histogram, a timer or a position, not of a gauge."""
        plans = _PLANS[self.kind]
        return any(isinstance(c, Extreme) and c.lost and not m for c, (_, _, m) in zip(self.cells, plans, strict=True))

    def look(self, shares: Iterable[Share], others: Iterable[Partial] = ()) -> None:
        """Find the extremes that are lost among the shares of all lives, and the partials of `others`."""
        known, partials = list(shares), list(others)
        for place, (cell, (index, operation, momentary)) in enumerate(zip(self.cells, _PLANS[self.kind], strict=True)):
            if isinstance(cell, Extreme) and cell.lost:
                column = [share.values[index] for share in known if share.current or not momentary]
                column += [_read(other.cells[place]) for other in partials]
                cell.found(least(column) if operation == _LEAST else greatest(column))

    def merge(self, other: Partial) -> None:
        """Add what other lives have of the same metric."""
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
        """Take out what was merged into this one and counts no living lives."""
        self.forgotten -= other.forgotten
        for cell, gone in zip(self.cells, other.cells, strict=True):
            if isinstance(cell, Sum) and isinstance(gone, Sum):
                cell.remove(gone)
        if self.merged is not None and other.merged is not None:
            self.merged.unmerge(other.merged)
        self.lose_extremes(other)

    def lose_extremes(self, other: Partial) -> None:
        """Note that what another one has is taken out of the sums: extremes that it may have held are lost."""
        for cell, gone in zip(self.cells, other.cells, strict=True):
            if isinstance(cell, Extreme) and isinstance(gone, Extreme):
                cell.lose(gone.value)

    def totals(self) -> Totals:
        """Return the summed fields; they may be beyond 64 bits, or infinite."""
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
        """Return p50 to p999 of everything that was counted, nothing where a sketch is missing."""
        return {} if self.merged is None else self.merged.quantiles()


def _cell(operation: int) -> Cell:
    return Sum() if operation == _SUM else Extreme(operator.lt if operation == _LEAST else operator.gt)


def _sketch(share: Share | None) -> tuple[Value, bytes | None] | None:
    return None if share is None else (share.values[0], share.sketch)


def _read(cell: Cell) -> int | float | None:
    return cell.value() if isinstance(cell, Sum) else cell.value


class SumCell(msgspec.Struct, array_like=True, gc=False):
    """`Sum`, with the numbers that 64 bits may not hold in hexadecimal."""

    known: int
    whole: str
    floats: int
    units: str


class StoredBins(msgspec.Struct, array_like=True):
    """`Merged`: by (scale, sign), each bucket as (index, count), counts in hexadecimal.

    `missing` lives counted something without a sketch.
    """

    bins: list[tuple[int, int, list[tuple[int, str]]]]
    zeros: str
    missing: int


class Held(msgspec.Struct, array_like=True):
    """The partial sums of one metric: sums, extremes and bins in the order of the partial's cells.

    `lost` has the places of extremes that are bounds only, because the life that held one was taken out.
    """

    sums: list[SumCell]
    extremes: list[Value]
    bins: StoredBins | None = None
    lost: list[int] = []

    def partial(self, kind: str) -> Partial:
        """Return it as a partial of a metric of this type, which counts no lives."""
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
    """Return a partial's sums, less its counts of lives."""
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


class Base(msgspec.Struct, array_like=True):
    """The forgotten lives of one metric: how many, their sums, and the number of the last list that is in them."""

    lives: int
    held: Held
    fold: int = 0


def is_kept(kind: str) -> bool:
    """Tell whether forgotten lives leave anything behind: gauges do not."""
    return any(field not in MOMENTARY for field in STORED[kind])


def fold(kind: str, base: Base | None, share: Share, number: int) -> Base:
    """Return the base with one more life in it, of the list with this number."""
    partial = base.held.partial(kind) if base is not None else Partial(kind)
    partial.replace(None, share._replace(current=False))
    lives, last = (base.lives, base.fold) if base is not None else (0, 0)
    return Base(lives + 1, hold(partial), max(last, number))
