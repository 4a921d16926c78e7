"""The retired base: what the lives of one metric that were folded add up to (rule 3), without changing any sum.

Counts are kept up to 2**63, which says "beyond 64 bits" for good: a base never shrinks. A sum with floats is kept as
a fraction, so that folding rounds nothing, and the order of folding does not matter. Nor does it to merged sketches.
"""

from __future__ import annotations

from fractions import Fraction

import msgspec

from tallystream.aggregator.table.kinds import MOMENTARY, STORED, Value, Values, greatest, least
from tallystream.aggregator.table.sketches import SKETCHED, merge
from tallystream.reporter.record import MAX_COUNT


class Base(msgspec.Struct, array_like=True, gc=False):
    """The retired lives of one metric: how many, and their values in the order of `STORED[kind]`.

    Momentary fields are None, and so is `sum`, which is exact in `total` ("25/2"); `floats` tells whether one of the
    values that it is made of was a float. `sketch` is their merged sketch, encoded; None where it would not stand for
    the whole count, because a life that counted something had none. `fold` numbers the last fold that is in it.
    """

    lives: int
    values: Values
    total: str = "0"
    floats: bool = False
    sketch: str | None = None
    fold: int = 0


def is_kept(kind: str) -> bool:
    """Tell whether retired lives leave anything behind: gauges do not."""
    return any(field not in MOMENTARY for field in STORED[kind])


def fold(kind: str, base: Base | None, values: Values, sketch: str | None = None, number: int = 0) -> Base:
    """Return the base with one more life in it, which retired in the fold with this number."""
    old = base or Base(0, (None,) * len(values))
    columns = zip(STORED[kind], old.values, values, strict=True)
    kept = tuple(_combine(field, before, value) for field, before, value in columns)
    total, floats = Fraction(old.total), old.floats
    if "sum" in STORED[kind]:
        value = values[STORED[kind].index("sum")]
        total, floats = total + Fraction(value or 0), floats or isinstance(value, float)
    merged = _merge(old, values, sketch) if kind in SKETCHED else None
    return Base(old.lives + 1, kept, str(total), floats, merged, max(old.fold, number))


def _merge(old: Base, values: Values, sketch: str | None) -> str | None:
    merged = merge([(old.values[0], old.sketch), (values[0], sketch)])
    # A count beyond 64 bits is never published again, and no sketch is encoded that could not be decoded.
    return merged.encode() if merged is not None and merged.count <= MAX_COUNT else None


def _combine(field: str, before: Value, value: Value) -> Value:
    if field == "count":
        return min((before or 0) + (value or 0), MAX_COUNT + 1)
    if field in ("min", "start"):
        return least((before, value))
    return greatest((before, value)) if field in ("max", "position") else None
