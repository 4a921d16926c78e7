"""The metric types: the fields of each one, and how a field adds up over lives.

The table, its rows, the sums, the points of a store and the subtraction of earlier lives are driven by it. The classes
of the record (tallystream.record) have the same fields, with their bounds.
"""

from __future__ import annotations

from typing import NamedTuple

TOTAL = "total"
"""Grows within a life. A sum has the total of all lives, also of those that have ended."""

LOWEST, HIGHEST = "lowest", "highest"
"""Only widens within a life. A sum has the lowest or highest value of all lives."""

CURRENT = "current"
"""Counts only while its life is living and its newest snapshot has it. A sum has the total of these lives."""


class Field(NamedTuple):
    """A field of a type, and how it adds up over lives."""

    name: str
    adds: str


_COUNT = Field("count", TOTAL)
_DISTRIBUTION = (_COUNT, Field("sum", TOTAL), Field("min", LOWEST), Field("max", HIGHEST))
_RATES = tuple(Field(name, CURRENT) for name in ("mean_rate", "m1_rate", "m5_rate", "m15_rate"))
_VALUE = (Field("value", CURRENT),)

TYPES: dict[str, tuple[Field, ...]] = {
    "counter": (_COUNT,),
    "float_counter": (Field("sum", TOTAL),),
    "updown": _VALUE,
    "gauge": _VALUE,
    "meter": (_COUNT, *_RATES),
    "histogram": _DISTRIBUTION,
    "timer": (*_DISTRIBUTION, *_RATES),
    "buckets": (_COUNT, Field("bounds", LOWEST), Field("counts", TOTAL)),
    "position": (Field("start", LOWEST), Field("position", HIGHEST)),
}
"""The types and their fields.

A histogram and a timer have a sketch besides, which is merged. The sum of a `value` has `sum`, `min`, `max`, `mean`
and the `number` of lives. The `bounds` of buckets are the same in all lives; their `counts` are added one by one.
"""

GROWING = {kind: fields[0].name for kind, fields in TYPES.items() if fields[0].adds == TOTAL}
"""The types whose first field is a total, and that field. It never falls within a life: if it does, it was reset."""

NAMES = {kind: tuple(field.name for field in fields) for kind, fields in TYPES.items()}

WHOLE = frozenset({"count", "number", "start", "position"})
"""Fields that are whole numbers. All others are floats in a store."""

QUANTILES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}
"""The fields with the quantiles of a histogram or timer, ascending. They follow from its sketch."""
