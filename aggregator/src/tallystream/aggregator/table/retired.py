"""What forgotten lives of one metric add up to (rule 3): their rows are gone, their counts stay in every sum."""

from __future__ import annotations

import msgspec

from tallystream.aggregator.table.held import Held, hold
from tallystream.aggregator.table.kinds import MOMENTARY, STORED
from tallystream.aggregator.table.partial import Partial, Share


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
