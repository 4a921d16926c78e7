"""The values that the table keeps of a metric, and how newer values replace them (types: tallystream.metric_types)."""

from __future__ import annotations

import sys
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from tallystream.metric_types import HIGHEST, LOWEST, NAMES, TOTAL, TYPES
from tallystream.record import CLASSES, MAX_COUNT, Counter, Histogram, Metric, Sketch
from tallystream_aggregator.table.arithmetic.sketches import checked_sketch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Value = int | float | None
Values = tuple[Value | bytes, ...]
"""The values of one metric. The bounds and the counts of explicit buckets are bytes."""

Stored = tuple[Values, Sketch | None]
"""What the table keeps of a metric: its values, and its sketch if it has one."""

Totals = dict[str, Value]
"""The summed fields of one metric. A field without a value is None."""

_WIDENING = {
    kind: [(index, field.adds == LOWEST) for index, field in enumerate(fields) if field.adds in (LOWEST, HIGHEST)]
    for kind, fields in TYPES.items()
}
_ZERO: dict[str, Value] = {"count": 0, "sum": 0.0}
_COUNTING = {kind for kind, fields in TYPES.items() if fields[0].adds == TOTAL}


def _reader(names: tuple[str, ...]) -> Callable[[Metric], Values]:
    """Return a function that returns these fields of a metric."""
    read: Any = attrgetter(*names)
    return read if len(names) > 1 else lambda metric: (read(metric),)


_READERS: dict[type, Callable[[Metric], Values]] = {CLASSES[kind]: _reader(names) for kind, names in NAMES.items()}


def stored(metrics: Sequence[Metric]) -> Iterator[Stored | ValueError]:
    """Yield what the table keeps of each metric, or why it is refused.

    It is refused if a value is beyond the range of floats, or if the sketch can't be read.
    """
    for metric in metrics:
        if metric.__class__ is Counter:  # the most frequent type
            yield (metric.count,), None
            continue
        try:
            values = stored_values(metric)
            yield values, checked_sketch(metric) if isinstance(metric, Histogram) else None
        except ValueError as error:
            yield error


def stored_values(metric: Metric) -> Values:
    """Return the values that the table stores of a metric, in the order of its type's fields.

    Raises:
        ValueError: one is beyond the range of floats.
    """
    values = _READERS[metric.__class__](metric)
    for value in values:
        if value.__class__ is int and not -MAX_COUNT <= value <= MAX_COUNT:
            return tuple(map(_bounded, values))
    return values


def count_falls(kind: str, old: Values, new: Values) -> bool:
    """Tell whether a count is lower than before, which rule 4 refuses within a life."""
    return kind in _COUNTING and new[0] < old[0]  # type: ignore[operator]  # a count is never None


def replaces(kind: str, old: Stored, new: Stored | ValueError) -> bool:
    """Tell whether new values replace old ones as they are. They don't if they are refused, or must be merged."""
    if isinstance(new, ValueError):
        return False
    before, after = old[0], new[0]
    return not count_falls(kind, before, after) and merge_values(kind, before, after) is after


def are_same(old: Sequence[object], new: Sequence[object]) -> bool:
    """Tell whether values are the same. A whole number and the equal float are not: they add up to other types."""
    return old == new and list(map(type, old)) == list(map(type, new))


def merge_values(kind: str, old: Values, new: Values) -> Values:
    """Return the values that replace `old`: the new ones. Extremes and positions only widen (rules 7 and 9)."""
    for index, is_lowest in _WIDENING[kind]:
        before, now = old[index], new[index]
        if before != now and (now is None or (before is not None and (before < now) == is_lowest)):  # type: ignore[operator]  # both are numbers, or bounds
            new = (*new[:index], before, *new[index + 1 :])
    return new


def is_above(values: Values, baseline: Values | None) -> bool:
    """Tell whether the count of `values` is above that of a baseline, which is 0 without one."""
    return (values[0] or 0) > (0 if baseline is None else baseline[0] or 0)  # type: ignore[operator]  # numbers


def since_baseline(kind: str, values: Values, baseline: Values) -> Values:
    """Return the values without those of a baseline. Extremes are those of the whole stream, if it counted anything."""
    if not is_above(values, baseline):
        fields = zip(values, TYPES[kind], strict=True)
        return tuple(_nothing(name, value) if adds == TOTAL else None for value, (name, adds) in fields)
    pairs = zip(values, baseline, TYPES[kind], strict=True)
    return tuple(_rest(value, base) if adds == TOTAL else value for value, base, (_, adds) in pairs)


def _nothing(name: str, value: Value | bytes) -> Value | bytes:
    return bytes(len(value)) if isinstance(value, bytes) else _ZERO[name]


def _rest(value: Value | bytes, base: Value | bytes) -> Value | bytes:
    if isinstance(value, bytes) or isinstance(base, bytes):
        counts, before = (np.frombuffer(one, "<u8") for one in (value, base))  # type: ignore[arg-type]  # both are bytes
        return (counts - before).tobytes() if (counts >= before).all() else None
    return None if value is None or base is None else _within(value - base)


def saturated(totals: Totals) -> tuple[Totals, bool]:
    """Return the totals, limited to 64 bits and to the range of floats, and whether one exceeded its range (rule 4).

    A total that exceeds its range becomes the largest or smallest number of its kind.
    """
    within = {field: _within(value) for field, value in totals.items()}
    return within, within != totals


def _within(value: Value) -> Value:
    if isinstance(value, int):
        return max(-MAX_COUNT - 1, min(value, MAX_COUNT))
    return None if value is None else max(-sys.float_info.max, min(value, sys.float_info.max))


def _bounded(value: Value | bytes) -> Value | bytes:
    # A gauge may be any JSON number. A whole number beyond 64 bits is stored as the nearest float.
    if isinstance(value, int) and not -MAX_COUNT - 1 <= value <= MAX_COUNT:
        try:
            return float(value)
        except OverflowError as error:
            raise ValueError("a value is beyond the range of floats") from error
    return value
