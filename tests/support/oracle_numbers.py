"""The numbers of the oracle: exact sums, and the nearest number within a range."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from support.oracle_decode import LARGEST

LARGEST_FLOAT = (2.0 - 2.0**-52) * 2.0**1023


def reduce(name: str, column: list[Any]) -> Any:
    """Combine the values that the lives have of the field `name`."""
    known = [value for value in column if value is not None]
    if name in ("count", "sum"):
        return add(known) if known or name == "count" else None
    return (min if name in ("min", "start") else max)(known, default=None)


def add(column: list[Any]) -> int | float:
    """Return the exact sum of integers. With a float among them, the exact sum is rounded once."""
    exact = sum((Fraction(value) for value in column), Fraction(0))
    if not any(isinstance(value, float) for value in column):
        return int(exact)
    try:
        return float(exact)
    except OverflowError:
        return float("inf") if exact > 0 else float("-inf")


def nearest(value: float) -> int | float:
    """Return the nearest number of the same type within 64 bits or the range of floats."""
    least, most = (-LARGEST - 1, LARGEST) if isinstance(value, int) else (-LARGEST_FLOAT, LARGEST_FLOAT)
    return max(least, min(value, most))
