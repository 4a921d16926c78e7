"""How the values of many lives, and of the retired base, become one: the arithmetic of rules 4 to 7 and 9."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.aggregator.table.kinds import (
    MOMENTARY,
    RATES,
    STORED,
    Totals,
    Value,
    Values,
    add,
    greatest,
    least,
    split,
    total,
)
from tallystream.aggregator.table.retired import Base, terms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def sum_lives(kind: str, rows: Sequence[tuple[Values, bool]], base: Base | None = None) -> Totals:
    """Sum the values of many lives; the flag says whether the row is current (its life living, its metric not missing).

    The result is the same whatever the order of the lives, and whichever of them are in the base.

    Raises:
        OverflowError: a float sum leaves the range of floats.
    """
    totals: Totals = {}
    for index, field in enumerate(STORED[kind]):
        column = [values[index] for values, current in rows if current or field not in MOMENTARY]
        if field == "value":
            totals |= {"sum": add(column), "min": least(column), "max": greatest(column), "number": len(column)}
        elif field == "sum":
            totals[field] = _sum(column, base)
        else:
            if base is not None and field not in MOMENTARY:
                column.append(base.values[index])
            totals[field] = _REDUCE[field](column)
    return totals


def _sum(column: list[Value], base: Base | None) -> Value:
    if base is None:
        return add(column)
    (whole, floats), (base_whole, base_floats) = split(v for v in column if v is not None), terms(base)
    return total(whole + base_whole, floats + base_floats)


_REDUCE: dict[str, Callable[[list[Value]], Value]] = {
    "count": lambda column: add(column) or 0,
    "min": least,
    "max": greatest,
    "start": least,
    "position": greatest,
    **dict.fromkeys(RATES, add),
}
