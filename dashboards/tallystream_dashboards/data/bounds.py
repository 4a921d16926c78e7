"""Numbers that lie between two bounds, and what follows from sums of them that are equal. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream_dashboards import formatting

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Bounds:
    """A number that lies between two bounds. `at_most` is None if there is no upper one.

    `granted` is then the upper bound if every offset has a record. Nothing shows that: transactions leave some without.
    """

    at_least: int = 0
    at_most: int | None = None
    granted: int | None = None

    @property
    def is_exact(self) -> bool:
        """Whether the number is known."""
        return self.at_least == self.at_most

    @property
    def most(self) -> int | None:
        """The upper bound, known or granted."""
        return self.granted if self.at_most is None else self.at_most

    @property
    def known(self) -> int | None:
        """The lower bound; None if nothing is known of the number."""
        return self.at_least if self.at_least or self.most is not None else None

    @property
    def short(self) -> str:
        """The number as text, as in `0 to 225` or `≥ 3`, with `?` if that is granted; a dash if nothing is known."""
        low, high = formatting.number(self.at_least), formatting.number(self.most)
        if self.most is None:
            return formatting.DASH if self.known is None else f"≥ {low}"
        return (low if self.at_least == self.most else f"{low} to {high}") + "?" * (self.at_most is None)

    def __str__(self) -> str:
        if self.is_exact:
            return "exact"
        text = f"at least {self.at_least:,}"
        if self.most is not None:
            text += f", at most {self.most:,}" + (" if every offset has a record" if self.at_most is None else "")
        return text


def balanced(left: list[Bounds], right: list[Bounds]) -> tuple[list[Bounds], list[Bounds]]:
    """Return the bounds of numbers that add up to the same on both sides, as far as each limits the others."""
    return _limited(left, right), _limited(right, left)


def _limited(side: list[Bounds], other: list[Bounds]) -> list[Bounds]:
    whole = total(other)
    limited = []
    for place, one in enumerate(side):
        rest = total(side[:place] + side[place + 1 :])
        at_least = one.at_least if rest.at_most is None else max(one.at_least, whole.at_least - rest.at_most)
        limits = (one.at_most, None if whole.at_most is None else whole.at_most - rest.at_least)
        highest = [limit for limit in limits if limit is not None]
        limited.append(Bounds(at_least, max(at_least, min(highest)) if highest else None))
    return limited


def total(bounds: Sequence[Bounds]) -> Bounds:
    """Return the bounds of the sum of numbers."""
    at_least = sum(one.at_least for one in bounds)
    most = [one.most for one in bounds if one.most is not None]
    if len(most) < len(bounds):
        return Bounds(at_least)
    known = all(one.at_most is not None for one in bounds)
    return Bounds(at_least, sum(most)) if known else Bounds(at_least, None, sum(most))
