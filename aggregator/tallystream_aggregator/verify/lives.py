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
    bins: sketches.Bins | None
    part: int
    seq: int


@dataclass(slots=True, eq=False)
class Life:
    """One life. Times are those of the clock of its shard and partition, in ms.

    `active_ms` is that of its last record that was not stale. It is forgotten by `keep_ms`, that of its last record, or
    the time of its ULID if that is later. `is_short` tells whether it is that of the short form, which is never
    forgotten. `current_parts` are the parts whose newest snapshot is from `partition`. `complete` tells whether
    snapshots have all metrics of a part, `created_ms` is the time of its ULID, and `limits` are those that the life has
    reached.
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

    @property
    def deadline_ms(self) -> int:
        """The partition's time from which on the life is silent: three intervals after `active_ms` (rule 5)."""
        return self.active_ms + 3 * self.every_ms

    def newest(self, row: Row) -> bool:
        """Return whether a row is current while the life is living: the newest snapshot has it, or is not complete."""
        return not self.complete or self.seqs.get(row.part, 0) == row.seq


RATES = ("mean_rate", "m1_rate", "m5_rate", "m15_rate")
STAYING = {"counter", "float_counter", "meter", "histogram", "timer", "position"}
"""Types whose numbers stay in the sum when a life is forgotten."""
COUNTED = STAYING - {"position", "float_counter"}
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1


@dataclass(slots=True)
class Total:
    """The totals of rows: counts, sums, extremes, positions, bins. `covered` is the number of values in the bins."""

    count: int = 0
    sum: Any = None
    extremes: dict[str, Any] = field(default_factory=dict)
    bins: sketches.Bins = field(default_factory=dict)
    covered: int = 0

    def add(self, row: Row) -> None:
        """Add one row. Floats are added as fractions, so nothing is rounded."""
        numbers = row.numbers
        self.count += numbers.get("count", 0)
        if "sum" in numbers:
            self.sum = (0 if self.sum is None else self.sum) + _exact(numbers["sum"])
        for name, choose in (("min", min), ("start", min), ("max", max), ("position", max)):
            if numbers.get(name) is not None:
                self.extremes[name] = choose(numbers[name], self.extremes.get(name, numbers[name]))
        if row.bins is not None:
            sketches.add(self.bins, row.bins)
            self.covered += numbers["count"]


def sum_of(kind: str, held: Iterable[tuple[Life, Row, bool]]) -> dict[str, Any]:
    """Return the fields of one sum. `held` has each life with its row, and whether the life is living.

    A number beyond its range is replaced by the largest or smallest one, and `overflow` is true (rule 4).
    """
    total = Total()
    instances, now, retired = [], [], 0
    for life, row, living in held:
        total.add(row)
        retired += life.forgotten
        if living and life.newest(row):
            instances.append(life.instance)
            now.append(row.numbers)
    fields: dict[str, Any] = {"retired": retired if kind in STAYING else 0}
    fields |= {"lives": len(instances), "instances": len(set(instances))}
    fields |= total.extremes
    if kind in ("histogram", "timer") and total.count and total.covered == total.count:
        bins = sketches.merged(total.bins)
        fields |= {"sketch": sketches.encode(bins), **sketches.quantiles(bins)}
    if kind in ("gauge", "updown"):
        values = [one["value"] for one in now]
        fields |= {"number": len(values)} | ({"min": min(values), "max": max(values)} if values else {})
    for name, number in _added(kind, total, now).items():
        fields[name], beyond = _within(number)
        if beyond:
            fields["overflow"] = True
            fields.pop("sketch", None)
    if fields.get("number") and "overflow" not in fields:
        fields["mean"] = fields["sum"] / fields["number"]
    return fields


def _added(kind: str, total: Total, now: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the exact sums: counts over all lives, momentary values over the living ones."""
    exact: dict[str, Any] = {}
    if kind in COUNTED:
        exact["count"] = total.count
    if kind in ("float_counter", "histogram", "timer"):
        exact["sum"] = total.sum
    if kind in ("meter", "timer") and now:
        exact |= {rate: sum((_exact(one[rate]) for one in now), start=0) for rate in RATES}
    if kind in ("gauge", "updown") and now:
        exact["sum"] = sum((_exact(one["value"]) for one in now), start=0)
    return exact


def _exact(number: Any) -> Any:
    return Fraction(number) if isinstance(number, float) else number


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
