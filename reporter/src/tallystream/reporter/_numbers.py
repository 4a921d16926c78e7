"""What a histogram or timer takes: finite numbers."""

from __future__ import annotations

import sys
from math import fsum

LARGEST = sys.float_info.max


def as_number(value: float) -> float:
    """Return whole numbers as they are, and what only behaves like a number (Decimal, numpy's) as a float.

    Raises:
        TypeError: it is no real number.
    """
    return value if isinstance(value, int) else fsum((value,))  # float() would take text too
