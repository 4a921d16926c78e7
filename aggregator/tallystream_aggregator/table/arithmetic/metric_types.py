"""What is kept of each metric type, how a newer value replaces it, and sums that do not depend on any order."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tallystream.record import MAX_COUNT, Counter, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable

Value = int | float | None
Values = tuple[Value, ...]
Totals = dict[str, Value]
"""The summed fields of one metric; a field that nobody has is None."""

RATES = ("mean_rate", "m1_rate", "m5_rate", "m15_rate")
STORED: dict[str, tuple[str, ...]] = {
    "counter": ("count",),
    "updown": ("value",),
    "gauge": ("value",),
    "meter": ("count", *RATES),
    "histogram": ("count", "sum", "min", "max"),
    "timer": ("count", "sum", "min", "max", *RATES),
    "position": ("start", "position"),
}
MOMENTARY = frozenset({"value", *RATES})
"""Fields that count only while their life is living and its newest snapshot has them; the others stay permanently."""


def stored(metric: Metric) -> Values:
    """Return what the table keeps of a metric, in the order of `STORED[metric.type]`."""
    if metric.__class__ is Counter:  # what most metrics are; the contract bounds counts
        return (metric.count,)
    return tuple(_bounded(getattr(metric, field)) for field in STORED[metric.type])


def falls(kind: str, old: Values, new: Values) -> bool:
    """Tell whether a count is lower than it was: rule 4 refuses that within a life."""
    first = STORED[kind][0]
    return first == "count" and new[0] < old[0]  # type: ignore[operator]  # a count is never None


def merge_values(kind: str, old: Values, new: Values) -> Values:
    """Return what replaces `old`: the new values, but for extremes and positions, which only widen (rules 7 and 9)."""
    if kind == "position":
        return (least((old[0], new[0])), greatest((old[1], new[1])))
    if kind in ("histogram", "timer"):
        return (*new[:2], least((old[2], new[2])), greatest((old[3], new[3])), *new[4:])
    return new


def mean(totals: Totals) -> float | None:
    """The mean of a gauge over the living lives, None where nobody reports it."""
    total, number = totals.get("sum"), totals.get("number")
    return total / number if number and total is not None else None


def saturated(totals: Totals) -> tuple[Totals, bool]:
    """Return the totals within 64 bits and the range of floats, and whether one was beyond (rule 4: never wrapped).

    What is beyond is the largest or smallest number of its kind.
    """
    within = {field: _within(value) for field, value in totals.items()}
    return within, any(within[field] != value for field, value in totals.items())


def _within(value: Value) -> Value:
    if isinstance(value, int):
        return max(-MAX_COUNT - 1, min(value, MAX_COUNT))
    return None if value is None else max(-sys.float_info.max, min(value, sys.float_info.max))


def _bounded(value: Value) -> Value:
    # A gauge may be any JSON number; one that 64 bits do not hold is kept as the float nearest to it.
    if isinstance(value, int) and not -MAX_COUNT - 1 <= value <= MAX_COUNT:
        return float(value)
    return value


def _known(column: Iterable[Value]) -> list[int | float]:
    return [value for value in column if value is not None]


def least(column: Iterable[Value]) -> Value:
    """Return the least of what is known."""
    return min(_known(column), default=None)


def greatest(column: Iterable[Value]) -> Value:
    """Return the greatest of what is known."""
    return max(_known(column), default=None)
