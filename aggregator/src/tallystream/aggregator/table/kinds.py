"""What is kept of each metric type, and how values of many lives become one: the arithmetic of rules 4 to 7 and 9.

Every reducer gives the same result whatever the order of the lives: a sum depends on the rows alone.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from tallystream.reporter.record import MAX_COUNT, Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

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
"""Fields that count only while their life is living and its newest snapshot has them; the others stay for good."""


def stored(metric: Metric) -> Values:
    """Return what the table keeps of a metric, in the order of `STORED[metric.type]`."""
    return tuple(_bounded(getattr(metric, field)) for field in STORED[metric.type])


def falls(kind: str, old: Values, new: Values) -> bool:
    """Tell whether a count is lower than it was: rule 4 refuses that within a life."""
    first = STORED[kind][0]
    return first == "count" and new[0] < old[0]  # type: ignore[operator]  # a count is never None


def merge_values(kind: str, old: Values, new: Values) -> Values:
    """Return what replaces `old`: the new values, but for positions, which keep the highest (rule 9)."""
    if kind != "position":
        return new
    return (_least((old[0], new[0])), _greatest((old[1], new[1])))


def sum_lives(kind: str, rows: Sequence[tuple[Values, bool]]) -> Totals:
    """Sum the values of many lives; the flag says whether the row is current (its life living, its metric not missing).

    Raises:
        OverflowError: a float sum leaves the range of floats.
    """
    totals: Totals = {}
    for index, field in enumerate(STORED[kind]):
        column = [values[index] for values, current in rows if current or field not in MOMENTARY]
        if field == "value":
            totals |= {"sum": _total(column), "min": _least(column), "max": _greatest(column), "number": len(column)}
        else:
            totals[field] = _REDUCE[field](column)
    return totals


def mean(totals: Totals) -> float | None:
    """The mean of a gauge over the living lives, None where nobody reports it."""
    total, number = totals.get("sum"), totals.get("number")
    return total / number if number and total is not None else None


def fits(totals: Totals) -> bool:
    """Tell whether every whole number is one that 64 bits hold (rule 4: never a wrapped number)."""
    return all(not isinstance(value, int) or -MAX_COUNT - 1 <= value <= MAX_COUNT for value in totals.values())


def _bounded(value: Value) -> Value:
    # A gauge may be any JSON number; one that 64 bits do not hold is kept as the float nearest to it.
    if isinstance(value, int) and not -MAX_COUNT - 1 <= value <= MAX_COUNT:
        return float(value)
    return value


def _known(column: Iterable[Value]) -> list[int | float]:
    return [value for value in column if value is not None]


def _count(column: Iterable[Value]) -> Value:
    return sum(_known(column))


def _total(column: Iterable[Value]) -> Value:
    known = _known(column)
    if not known:
        return None
    floats = [value for value in known if isinstance(value, float)]
    whole = sum(value for value in known if isinstance(value, int))
    return total(whole, floats) if floats else whole


def total(whole: int, floats: list[float]) -> float:
    """Return the float nearest to the exact sum: rounded once, so the order of the lives does not matter.

    Raises:
        OverflowError: the sum leaves the range of floats.
    """
    near = float(whole)
    try:
        return math.fsum([*floats, near, float(whole - int(near))])
    except OverflowError:  # fsum gives up on the way where the sum itself may be small
        return float(sum(map(Fraction, floats), Fraction(whole)))


def _least(column: Iterable[Value]) -> Value:
    return min(_known(column), default=None)


def _greatest(column: Iterable[Value]) -> Value:
    return max(_known(column), default=None)


_REDUCE: dict[str, Callable[[Iterable[Value]], Value]] = {
    "count": _count,
    "sum": _total,
    "min": _least,
    "max": _greatest,
    "start": _least,
    "position": _greatest,
    **dict.fromkeys(RATES, _total),
}
