"""The sum of a metric over the rows of lives: rules 4 to 7 and 9 of docs/table.md."""

from __future__ import annotations

import struct
import sys
from collections import Counter
from fractions import Fraction
from typing import Any

from tallystream_aggregator.verify import sketches
from tallystream_aggregator.verify.lives import (
    ADDED,
    MAX_INT64,
    MIN_INT64,
    WIDENING,
    Life,
    Row,
    Values,
    computed,
    counts_of,
)

Held = tuple[Life, Row, bool]
"""A life, its row of a metric, and whether the life is living."""


def sum_of(kind: str, held: list[Held]) -> dict[str, Any]:
    """Return the fields of one sum.

    A number beyond its range is replaced by the largest or smallest one, and `overflow` is true (rule 4).
    """
    rows = [row for _, row, _ in held]
    now = [(life, row.values) for life, row, living in held if living and life.newest(row)]
    fields: dict[str, Any] = {}
    for name, number in _exact(kind, rows, [values for _, values in now]).items():
        fields[name], beyond = _within(number)
        if beyond:
            fields["overflow"] = True
    if kind in ("gauge", "updown"):
        numbers: list[Any] = [values.value for _, values in now]
        fields |= {"number": len(numbers)} | ({"min": min(numbers), "max": max(numbers)} if numbers else {})
        if numbers and "overflow" not in fields:
            fields["mean"] = fields["sum"] / len(numbers)
    if kind in ("histogram", "timer") and "overflow" not in fields:
        fields |= _quantiles(rows)
    bounds = fields.pop("bounds", None)
    if bounds is not None and fields["counts"] is not None and "overflow" not in fields:
        fields |= {"bounds": list(struct.unpack(f"<{len(bounds) // 8}d", bounds))} if bounds else {}
    else:
        fields.pop("counts", None)
    fields |= {"lives": len(now), "instances": len({life.instance for life, _ in now})}
    return fields | {"retired": sum(row.lives for life, row, _ in held if life.forgotten)}


def merged(kind: str, rows: list[Row]) -> Row | None:
    """Return what stays of rows when their lives are forgotten, None if nothing does. Nothing is rounded."""
    if kind in ("gauge", "updown"):
        return None
    return Row(computed(kind, _exact(kind, rows, [])), lives=sum(row.lives for row in rows), bins=_all_bins(rows))


def _exact(kind: str, rows: list[Row], now: list[Values]) -> dict[str, Any]:
    """Return the exact sums and the widest range. `now` are the values that are current."""
    lasting, momentary = ADDED[kind]
    exact: dict[str, Any] = {}
    for name in lasting:
        if name == "counts":
            lists = [counts_of(row.values) for row in rows]
            exact[name] = None if not lists or None in lists else list(map(sum, zip(*lists, strict=True)))
            continue
        numbers = [getattr(row.values, name) for row in rows]
        exact[name] = None if None in numbers or (name == "sum" and not numbers) else _add(numbers)
    for name in momentary if now else ():
        exact["sum" if name == "value" else name] = _add([getattr(values, name) for values in now])
    for name, choose in WIDENING.get(kind, ()):
        numbers = [number for row in rows if (number := getattr(row.values, name)) is not None]
        exact |= {name: choose(numbers)} if numbers else {}
    return exact


def _add(numbers: list[Any]) -> Any:
    """Return a sum. Floats are added as fractions, so nothing is rounded."""
    return sum((Fraction(number) if isinstance(number, float) else number for number in numbers), start=0)


def _all_bins(rows: list[Row]) -> sketches.Bins:
    bins: Counter[tuple[int, int, int]] = Counter()
    for row in rows:
        bins.update(row.bins)
        sketch = getattr(row.values, "sketch", None)
        if sketch is not None:
            bins.update(sketches.bins_of(sketch))
    return bins


def _quantiles(rows: list[Row]) -> dict[str, Any]:
    """Return the quantiles and the merged sketch as (scale, buckets), if the sketches have all values."""
    bins = _all_bins(rows)
    count = sum(row.values.count for row in rows)
    if not count or sum(bins.values()) != count:
        return {}
    bins = sketches.merged(bins)
    scale = next((scale for sign, scale, _ in bins if sign), 0)  # all are of one
    return sketches.quantiles(bins) | {"sketch": (scale, bins)}


def _within(number: Any) -> tuple[Any, bool]:
    """Return the number, limited to what can be published, and whether it was out of range."""
    if isinstance(number, Fraction):
        try:
            return float(number), False
        except OverflowError:
            return (sys.float_info.max if number > 0 else -sys.float_info.max), True
    if isinstance(number, int) and not MIN_INT64 <= number <= MAX_INT64:
        return (MAX_INT64 if number > 0 else MIN_INT64), True
    return number, False
