"""The bytes of partial sums: what many lives have of one metric, as it is stored, published and sent by a shard."""

from __future__ import annotations

import msgspec

from tallystream.aggregator.table.exact import Extreme, Sum
from tallystream.aggregator.table.kinds import Value
from tallystream.aggregator.table.partial import Partial


class SumCell(msgspec.Struct, array_like=True, gc=False):
    """`Sum`, with the numbers that 64 bits may not hold in hexadecimal."""

    known: int
    whole: str
    floats: int
    units: str


class Bins(msgspec.Struct, array_like=True):
    """`Merged`: bins as (index, count), counts in hexadecimal; `missing` lives counted something without a sketch."""

    positive: list[tuple[int, str]]
    negative: list[tuple[int, str]]
    zeros: str
    missing: int


class Held(msgspec.Struct, array_like=True):
    """The partial sums of one metric: sums, extremes and bins in the order of the partial's cells.

    `lost` has the places of extremes that are bounds only, because the life that held one was taken out.
    """

    sums: list[SumCell]
    extremes: list[Value]
    bins: Bins | None = None
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
            partial.merged.positive = {index: int(count, 16) for index, count in self.bins.positive}
            partial.merged.negative = {index: int(count, 16) for index, count in self.bins.negative}
            partial.merged.zeros, partial.merged.missing = int(self.bins.zeros, 16), self.bins.missing
        return partial


def hold(partial: Partial) -> Held:
    """Return a partial's sums, less its counts of lives."""
    merged, bins = partial.merged, None
    if merged is not None:
        positive, negative = (
            [(index, f"{count:x}") for index, count in sorted(found.items())]
            for found in (merged.positive, merged.negative)
        )
        bins = Bins(positive, negative, f"{merged.zeros:x}", merged.missing)
    return Held(
        [SumCell(c.known, f"{c.whole:x}", c.floats, f"{c.units:x}") for c in partial.cells if isinstance(c, Sum)],
        [cell.value for cell in partial.cells if isinstance(cell, Extreme)],
        bins,
        [place for place, cell in enumerate(partial.cells) if isinstance(cell, Extreme) and cell.lost],
    )
