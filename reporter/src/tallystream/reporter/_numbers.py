"""Numbers as the record has them, whatever the application has them as."""

from __future__ import annotations

from math import fsum
from operator import index

LARGEST = 1e150
"""The largest magnitude of a value that is added up: its square, and any sum of such values, is a finite float."""


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
