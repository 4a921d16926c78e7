"""Numbers as the record takes them."""

from __future__ import annotations

from math import isfinite
from typing import Any

from tallystream.reporter.record import MAX_COUNT


def number(value: Any) -> int | float:
    """Return a whole number of 64 bits as it is, anything else as the float nearest to it.

    Raises:
        ValueError: it is no finite number.
        TypeError: it is no number.
    """
    if isinstance(value, int) and -MAX_COUNT - 1 <= value <= MAX_COUNT:
        return int(value)
    near = float(value)
    if not isfinite(near):
        raise ValueError(f"{value!r} is no finite number")
    return near


def count(value: float) -> int:
    """Return the whole part of a count.

    Raises:
        ValueError: it is beyond the 63 bits that the record has for it.
    """
    whole = int(value)
    if whole > MAX_COUNT:
        raise ValueError(f"{value!r} is beyond the 63 bits of a count")
    return whole
