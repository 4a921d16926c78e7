"""The state of the replay, lives and their rows, and the sum of a metric over them."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from tallystream_aggregator.verify import sketches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.verify.decode import Identity


@dataclass(frozen=True, slots=True)
class Settings:
    """The numbers in the rules: times in ms, sizes in bytes.

    Options are `forget_after_ms`, `max_app_metrics` and `otlp_topics`.
    """

    forget_after_ms: int = 7 * 86_400_000
    short_form_every_ms: int = 60_000
    max_record_bytes: int = 1_048_576
    max_metrics: int = 10_000
    max_app_metrics: int = 1_000_000
    """All apps together may have four times as many. Names and tags may have 256 bytes for each metric."""
    otlp_topics: tuple[str, ...] = ()
    """The topics of OTLP metrics."""


@dataclass(slots=True)
class Row:
    """One metric of one life: its newest numbers, and the part and seq of their snapshot."""

    numbers: dict[str, Any]
    part: int
    seq: int


@dataclass(slots=True, eq=False)
class Life:
    """One life. Times are those of the clock of its shard and partition, in ms.

    `active_ms` is that of its last record that was not stale. It is forgotten by `keep_ms`, that of its last record, or
    the time of its ULID if that is later. `is_short` tells whether it is that of the short form, which is never
    forgotten. `current_parts` are the parts whose newest snapshot is from `partition`. `complete` tells whether
    snapshots have all metrics of a part, `created_ms` is the time of its ULID, and `limits` are those that the life has
    reached. `bytes` are those of the names and tags of its rows. `baselines` has the numbers of metrics that were
    counted before their stream of OTLP began.
    """

    app: str
    instance: str
    partition: str
    every_ms: int
    keep_ms: int
    active_ms: int
    is_short: bool = False
    final: bool = False
    forgotten: bool = False
    complete: bool = True
    created_ms: int = 0
    limits: set[str] = field(default_factory=set)
    seqs: dict[int, int] = field(default_factory=dict)
    current_parts: set[int] = field(default_factory=set)
    rows: dict[Identity, Row] = field(default_factory=dict)
    bytes: int = 0
    baselines: dict[Identity, dict[str, Any]] = field(default_factory=dict)

    @property
    def deadline_ms(self) -> int:
        """The partition's time from which on the life is silent: three intervals after `active_ms` (rule 5)."""
        return self.active_ms + 3 * self.every_ms

    def counted(self, identity: Identity) -> Row:
        """Return the row of a metric without what was counted before its stream began."""
        row, base = self.rows[identity], self.baselines.get(identity)
        if base is None:
            return row
        main = "count" if "count" in base else "sum"
        if row.numbers[main] <= base[main]:
            none = {"count": 0, "sum": 0.0, "min": None, "max": None, "sketch": None}
            return Row({name: none[name] for name in row.numbers}, row.part, row.seq)
        rest: dict[str, Any] = {
            name: None if row.numbers[name] is None or base[name] is None else row.numbers[name] - base[name]
            for name in ("count", "sum")
            if name in base
        }
        sketch = {"sketch": None} if "sketch" in base else {}
        return Row({**row.numbers, **rest, **sketch}, row.part, row.seq)

    def newest(self, row: Row) -> bool:
        """Return whether a row is current while the life is living: the newest snapshot has it, or is not complete."""
        return not self.complete or self.seqs.get(row.part, 0) == row.seq


RATES = ("mean_rate", "m1_rate", "m5_rate", "m15_rate")
STAYING = {"counter", "float_counter", "meter", "histogram", "timer", "position"}
"""Types whose numbers stay in the sum when a life is forgotten."""
EXTREMES = (("min", min), ("start", min), ("max", max), ("position", max))
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1


def sum_of(kind: str, held: Iterable[tuple[Life, Row, bool]]) -> dict[str, Any]:
    """Return the fields of one sum. `held` has each life with its row, and whether the life is living.

    A number beyond its range is replaced by the largest or smallest one, and `overflow` is true (rule 4).
    """
    held = list(held)
    rows = [row for _, row, _ in held]
    now = [(life, row) for life, row, living in held if living and life.newest(row)]
    fields: dict[str, Any] = {}
    for name, number in _added(kind, rows, [row for _, row in now]).items():
        fields[name], beyond = _within(number)
        if beyond:
            fields["overflow"] = True
    for name, choose in EXTREMES:
        numbers = [row.numbers[name] for row in rows if row.numbers.get(name) is not None]
        fields |= {name: choose(numbers)} if numbers else {}
    if kind in ("gauge", "updown"):
        values = [row.numbers["value"] for _, row in now]
        fields |= {"number": len(values)} | ({"min": min(values), "max": max(values)} if values else {})
        if values and "overflow" not in fields:
            fields["mean"] = fields["sum"] / len(values)
    if kind in ("histogram", "timer") and "overflow" not in fields:
        fields |= _quantiles(rows)
    fields |= {"lives": len(now), "instances": len({life.instance for life, _ in now})}
    return fields | {"retired": sum(life.forgotten for life, _, _ in held) if kind in STAYING else 0}


def _added(kind: str, rows: list[Row], now: list[Row]) -> dict[str, Any]:
    """Return the exact sums: counts over all lives, momentary values over the living ones."""
    exact: dict[str, Any] = {}
    if kind in ("counter", "meter", "histogram", "timer"):
        exact["count"] = sum(row.numbers["count"] for row in rows)
    if kind in ("float_counter", "histogram", "timer"):
        unknown = not rows or any(row.numbers["sum"] is None for row in rows)
        exact["sum"] = None if unknown else _add(rows, "sum")
    if kind in ("meter", "timer") and now:
        exact |= {rate: _add(now, rate) for rate in RATES}
    if kind in ("gauge", "updown") and now:
        exact["sum"] = _add(now, "value")
    return exact


def _add(rows: list[Row], name: str) -> Any:
    """Return the sum of a field. Floats are added as fractions, so nothing is rounded."""
    numbers = (row.numbers[name] for row in rows)
    return sum((Fraction(number) if isinstance(number, float) else number for number in numbers), start=0)


def _quantiles(rows: list[Row]) -> dict[str, Any]:
    """Return the quantiles and the merged sketch as (scale, buckets), if the sketches have all values."""
    bins: sketches.Bins = {}
    for row in rows:
        sketches.add(bins, row.numbers["sketch"] or {})
    count = sum(row.numbers["count"] for row in rows)
    if not count or sum(bins.values()) != count:
        return {}
    bins = sketches.merged(bins)
    scale = max((scale for sign, scale, _ in bins if sign), default=0)
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
