"""Which values a store of numbers can hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tallystream_aggregator.sinks.base import Field, Point


def storable(value: Field) -> bool:
    """Tell whether a value can be stored: a float is finite, an integer has 64 bits with its sign."""
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def refused(point: Point) -> list[Field]:
    """Return those of a point's values, its time among them, that no store can hold."""
    return [value for value in (point.ts_ms, *point.fields.values()) if not storable(value)]
