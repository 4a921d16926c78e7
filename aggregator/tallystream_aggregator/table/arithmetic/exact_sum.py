"""Running sums and extremes from which a value can be removed exactly.

Floats are added as whole numbers of 2**-1074, the smallest positive float, in Python's unbounded integers. A sum is
rounded once, when it is read, so it depends neither on the order of its terms nor on removed ones.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tallystream_aggregator.table.arithmetic.values import Value

UNIT_BITS = 1074
_UNITS = 1 << UNIT_BITS


def units(value: float) -> int:
    """Return a finite float as a whole number of 2**-1074."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << (UNIT_BITS + 1 - denominator.bit_length())


def total_units(values: Sequence[float]) -> int:
    """Return the sum of finite floats as a whole number of 2**-1074.

    `fsum` rounds the sum of any number of floats once. What it rounds off is the next sum, which soon is 0.
    """
    total, left = 0, list(values)
    try:
        while rounded := math.fsum(left):
            total += units(rounded)
            left.append(-rounded)
    except OverflowError:  # a sum of some of them is beyond the range of floats
        return sum(map(units, values))
    return total


class ExactSum:
    """A sum of whole numbers and floats. `terms` counts its terms, `floats` the floats among them."""

    __slots__ = ("floats", "integers", "terms", "units")

    def __init__(self, terms: int = 0, integers: int = 0, floats: int = 0, units: int = 0) -> None:
        self.terms, self.integers, self.floats, self.units = terms, integers, floats, units

    def replace(self, old: Value, new: Value) -> None:
        """Remove `old` and add `new`. None stands for no value."""
        if isinstance(old, float) and isinstance(new, float):  # the usual cases: a newer value of the same kind
            self.units += units(new) - units(old)
            return
        if isinstance(old, int) and isinstance(new, int):
            self.integers += new - old
            return
        if old is not None:
            self._add(old, -1)
        if new is not None:
            self._add(new, 1)

    def replace_all(self, old: Sequence[Value], new: Sequence[Value]) -> None:
        """Remove each value of `old` and add the one of `new` in its place."""
        kinds = {*map(type, old), *map(type, new)}
        if kinds == {float}:
            self.units += total_units([*new, *map(operator.neg, old)])  # type: ignore[arg-type, list-item]  # floats
        elif kinds == {int}:
            self.integers += sum(new) - sum(old)  # type: ignore[arg-type]  # whole numbers
        else:
            for pair in zip(old, new, strict=True):
                self.replace(*pair)

    def replace_floats(self, old: Sequence[float], new: Sequence[float]) -> None:
        """Remove the floats `old` and add `new`, which may be more or fewer."""
        self.terms += len(new) - len(old)
        self.floats += len(new) - len(old)
        self.units += total_units([*new, *map(operator.neg, old)])

    def merge(self, other: ExactSum, sign: int = 1) -> None:
        """Add another sum. With the sign -1, subtract one that was merged into this one."""
        self.terms += sign * other.terms
        self.integers += sign * other.integers
        self.floats += sign * other.floats
        self.units += sign * other.units

    def value(self) -> Value:
        """Return the sum, or None if it has no terms. If a term is a float, so is the sum, correctly rounded.

        A float sum beyond the range of floats is infinite.
        """
        if not self.terms:
            return None
        if not self.floats:
            return self.integers
        scaled = (self.integers << UNIT_BITS) + self.units
        try:
            return scaled / _UNITS
        except OverflowError:
            return math.inf if scaled > 0 else -math.inf

    def _add(self, value: int | float, sign: int) -> None:  # noqa: PYI041 (the two are summed apart)
        self.terms += sign
        if isinstance(value, float):
            self.floats += sign
            self.units += sign * units(value)
        else:
            self.integers += sign * value


class Counts(ExactSum):
    """A sum of lists of counts, of which each has 8 bytes and the lowest comes first, as one whole number.

    No count takes more than its 8 bytes, unless the total of all counts exceeds 64 bits.
    """

    __slots__ = ()

    def replace(self, old: bytes | None, new: bytes | None) -> None:  # type: ignore[override]
        """Remove `old` and add `new`. None stands for no list."""
        super().replace(_whole(old), _whole(new))


def _whole(counts: bytes | None) -> int | None:
    return None if counts is None else int.from_bytes(counts, "little")


class Extreme:
    """The minimum or maximum of many values; `better` compares two of them.

    It is `lost` after the value that held it was removed. Then it has to be found among all values again.
    """

    __slots__ = ("better", "lost", "value")

    def __init__(self, better: Callable[[int | float, int | float], bool]) -> None:
        self.better = better
        self.value: Value = None
        self.lost = False

    def replace(self, old: Value, new: Value) -> None:
        """Remove `old` and add `new`. None stands for no value."""
        if new is not None and (self.value is None or not self.better(self.value, new)):
            self.value, self.lost = new, False  # it is at least as good as the bound of all others
        elif old is not None and old == self.value:
            self.lost = True

    def replace_all(self, old: Sequence[Value], new: Sequence[Value]) -> None:
        """Remove each value of `old` and add the one of `new` in its place. Most are equal."""
        for before, after in zip(old, new, strict=True):
            if before != after:
                self.replace(before, after)

    def set(self, value: Value) -> None:
        """Set the extreme that was found among all values."""
        self.value, self.lost = value, False
