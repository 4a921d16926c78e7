"""The stored values of each metric type, and how newer values replace them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tallystream.record import MAX_COUNT, Counter, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable

Value = int | float | None
Values = tuple[Value, ...]
Totals = dict[str, Value]
"""The summed fields of one metric. A field without a value is None."""

RATES = ("mean_rate", "m1_rate", "m5_rate", "m15_rate")
STORED: dict[str, tuple[str, ...]] = {
    "counter": ("count",),
    "float_counter": ("sum",),
    "updown": ("value",),
    "gauge": ("value",),
    "meter": ("count", *RATES),
    "histogram": ("count", "sum", "min", "max"),
    "timer": ("count", "sum", "min", "max", *RATES),
    "position": ("start", "position"),
}
MOMENTARY = frozenset({"value", *RATES})
"""Fields that count only while their life is living and its newest snapshot has them. All other fields stay."""

_COUNTS = ("count", "sum")
"""The first field of the types that count: `sum` is that of a float counter."""


def stored_values(metric: Metric) -> Values:
    """Return the values that the table stores of a metric, in the order of `STORED[metric.type]`."""
    if metric.__class__ is Counter:  # the most frequent type; the contract bounds counts
        return (metric.count,)
    return tuple(_bounded(getattr(metric, field)) for field in STORED[metric.type])


def count_falls(kind: str, old: Values, new: Values) -> bool:
    """Tell whether a count is lower than before, which rule 4 refuses within a life."""
    return STORED[kind][0] in _COUNTS and new[0] < old[0]  # type: ignore[operator]  # a count is never None


def merge_values(kind: str, old: Values, new: Values) -> Values:
    """Return the values that replace `old`: the new ones. Extremes and positions only widen (rules 7 and 9)."""
    if kind == "position":
        return (minimum((old[0], new[0])), maximum((old[1], new[1])))
    if kind in ("histogram", "timer"):
        return (*new[:2], minimum((old[2], new[2])), maximum((old[3], new[3])), *new[4:])
    return new


def saturated(totals: Totals) -> tuple[Totals, bool]:
    """Return the totals, limited to 64 bits and to the range of floats, and whether one exceeded its range (rule 4).

    A total that exceeds its range becomes the largest or smallest number of its kind.
    """
    within = {field: _within(value) for field, value in totals.items()}
    return within, any(within[field] != value for field, value in totals.items())


def _within(value: Value) -> Value:
    if isinstance(value, int):
        return max(-MAX_COUNT - 1, min(value, MAX_COUNT))
    return None if value is None else max(-sys.float_info.max, min(value, sys.float_info.max))


def _bounded(value: Value) -> Value:
    # A gauge may be any JSON number. A whole number beyond 64 bits is stored as the nearest float.
    if isinstance(value, int) and not -MAX_COUNT - 1 <= value <= MAX_COUNT:
        return float(value)
    return value


def _known(column: Iterable[Value]) -> list[int | float]:
    return [value for value in column if value is not None]


def minimum(column: Iterable[Value]) -> Value:
    """Return the minimum of the values that are not None."""
    return min(_known(column), default=None)


def maximum(column: Iterable[Value]) -> Value:
    """Return the maximum of the values that are not None."""
    return max(_known(column), default=None)
