"""Which of many stay by chance: where few do, a draw for each of those, not for each of the many. Pure.

Source: Devroye, "Non-Uniform Random Variate Generation", Springer 1986: the gaps between those that stay (X.2), by
exponential spacings (V.2) where chances change, and by rejection (VI.2.4) where each has one of its own.
"""

from __future__ import annotations

from math import log, log1p
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

FEW = 0.1
"""The chance from which on a draw for each takes less time."""


def few_of(size: int, chance: Callable[[int], float], draw: Callable[[], float]) -> list[int]:
    """Return the places from 0 to `size` - 1 that stay, in rising order, each by its own chance.

    From the last place on, as if all had its chance, as many are skipped as would go one after another; the place where
    that ends stays with what its own chance is of that one, and it goes on from there.

    Args:
        size: how many places there are.
        chance: of a place; below 1, and not higher than that of any place after it.
        draw: gives numbers in [0, 1).
    """
    stays: list[int] = []
    while size and (most := chance(size - 1)):
        gone = log(1.0 - draw()) / log1p(-most)
        if gone >= size:  # before it is made a whole number: it may be infinite
            break
        size -= int(gone) + 1
        if draw() * most < chance(size):
            stays.append(size)
    stays.reverse()
    return stays


class Chooser:
    """Chooses among values that keep coming. Not locked: its owner does that.

    A value that goes with the chance exp(-h) spends h of a patience, which is drawn from the exponential distribution
    of mean 1; the value at which it ends stays. How much was spent before does not matter to that distribution, so the
    chance may change with each call.

    Args:
        draw: gives numbers in [0, 1).
    """

    __slots__ = ("_draw", "_patience")

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._patience: float | None = None

    def some_of(self, values: list[float], chance: float) -> list[float]:
        """Return those that stay, each by this chance, below 1."""
        draw, begin, size = self._draw, 0, len(values)
        if chance >= FEW:
            return [value for value in values if draw() < chance]
        patience, spent, some = self._patience, -log1p(-chance), []
        if patience is None:
            patience = -log(1.0 - draw())
        while spent and (gone := patience / spent) < size - begin:
            begin += int(gone) + 1
            some.append(values[begin - 1])
            patience = -log(1.0 - draw())
        self._patience = max(patience - (size - begin) * spent, 0.0)
        return some
