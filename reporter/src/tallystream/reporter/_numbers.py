"""Numbers as the record has them, whatever the application has them as."""

from __future__ import annotations

import sys
from math import fsum, inf
from operator import index

LARGEST = sys.float_info.max
SMALL = 2.0**-520
"""Numbers that are multiplied by this can be squared, and many of them added up, without leaving the numbers."""


def as_number(value: float) -> float:
    """Return a whole number as an int, any other real one as a float: also numpy's, Decimal, Fraction, bool.

    The encoder of records knows no others, and one of them would keep all metrics from being reported.

    Raises:
        TypeError: it is no real number.
    """
    if value.__class__ is float or value.__class__ is int:
        return value
    try:
        return int(index(value))  # type: ignore[arg-type]  # what has no __index__ is no whole number
    except TypeError:
        pass
    try:
        return fsum((value,))  # float() would take text too
    except TypeError:
        raise TypeError(f"{value!r:.100} is no number: give an int, a float, or another real number.") from None


def saturating_sum(total: float, values: list[float]) -> float:
    """Return `total` and all values; the largest number of its sign, where that is beyond all numbers."""
    try:
        total_now = total + fsum(values)
    except OverflowError:  # on the way, if not in the end
        total_now = inf
    if -LARGEST <= total_now <= LARGEST:
        return total_now
    return saturated(fsum(value * SMALL for value in (total, *values)) / SMALL)


def saturated(value: float) -> float:
    """Return the value; the largest number of its sign, where it is infinite."""
    return min(max(value, -LARGEST), LARGEST)
