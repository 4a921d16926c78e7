"""Lives and their rows: what the replay keeps of the records of an instance."""

from __future__ import annotations

import struct
import sys
from dataclasses import dataclass, field
from operator import attrgetter, lt
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tallystream.record import Histogram
from tallystream_aggregator.verify import sketches

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream.record import Snapshot
    from tallystream_aggregator.verify.decode import Identity

MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1
_NAME, _TAGS = attrgetter("name"), attrgetter("tags")

Values = Any
"""A metric of a record, or the numbers of several in that form."""


@dataclass(frozen=True, slots=True)
class Tags:
    """The sums lack the tags `dropped`. If `kept` is not None, they have no other tags (rule 12)."""

    dropped: frozenset[str] = frozenset()
    kept: frozenset[str] | None = None

    def sum_of(self, identity: Identity) -> Identity:
        """Return the identity of the sum that a metric is part of."""
        app, kind, name, tags = identity
        return app, kind, name, tuple(tag for tag in tags if self._has(tag[0]) or _needs(kind, tag[0]))

    def _has(self, tag: str) -> bool:
        return tag not in self.dropped and (self.kept is None or tag in self.kept)


def _difference(value: float, base: float) -> float:
    """Return the difference of two numbers. One beyond the range of floats is the largest or smallest float."""
    return max(-sys.float_info.max, min(value - base, sys.float_info.max))


def _needs(kind: str, tag: str) -> bool:
    """Return whether the sum would mean nothing without this tag."""
    return (kind, tag) in (("position", "topic"), ("position", "partition"), ("buckets", "bounds"))


@dataclass(frozen=True, slots=True)
class Settings:
    """The numbers in the rules: times in ms, sizes in bytes.

    The ledger has `forget_after_ms`, `max_table_bytes` and `otlp_topics`, the positions row `tags`, those that the sums
    have. The others are the same for every table.
    """

    forget_after_ms: int = 7 * 86_400_000
    short_form_every_ms: int = 60_000
    max_record_bytes: int = 1_048_576
    max_metrics: int = 10_000
    max_table_bytes: int = 2**31
    """That of a shard. An app may have three quarters of it (docs/table.md, "Limits")."""
    otlp_topics: tuple[str, ...] = ()
    """The topics of OTLP metrics."""
    tags: Tags = field(default_factory=Tags)


@dataclass(slots=True)
class Row:
    """One metric of one life: its newest values, and the part and seq of their snapshot.

    `last` is the last value of the short form. A row of forgotten lives has the values of `lives` of them, and the
    `bins` of their sketches.
    """

    values: Values
    part: int = 0
    seq: int = 0
    last: int = 0
    lives: int = 1
    bins: sketches.Bins | None = None


RATES = ("mean_rate", "m1_rate", "m5_rate", "m15_rate")
ADDED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "counter": (("count",), ()),
    "float_counter": (("sum",), ()),
    "updown": ((), ("value",)),
    "gauge": ((), ("value",)),
    "meter": (("count",), RATES),
    "histogram": (("count", "sum"), ()),
    "timer": (("count", "sum"), RATES),
    "buckets": (("count", "counts"), ()),
    "position": ((), ()),
    "instances": ((), ()),
}
"""The fields of each type that are added over all lives, and over those in which they are current."""

_MIN_MAX = (("min", min), ("max", max))
WIDENING: dict[str, tuple[tuple[str, Callable[..., Any]], ...]] = {
    "histogram": _MIN_MAX,
    "timer": _MIN_MAX,
    "buckets": (("bounds", min),),
    "position": (("start", min), ("position", max)),
}
"""The fields of which the lowest or the highest value of all lives counts."""


def fields_of(kind: str) -> list[str]:
    """Return the fields of a type's values that sums are made of."""
    return [*ADDED[kind][0], *ADDED[kind][1], *(name for name, _ in WIDENING.get(kind, ()))]


def computed(kind: str, fields: dict[str, Any]) -> Values:
    """Return computed values, which are not those of a record. They have no sketch."""
    return SimpleNamespace(**dict.fromkeys(fields_of(kind)) | fields, type=kind, sketch=None)


def main_count(values: Values) -> Any:
    """Return what must not fall within a life: the first field that is added over all lives, 0 without one."""
    lasting = ADDED[values.type][0]
    return getattr(values, lasting[0]) if lasting else 0


def counts_of(values: Values) -> list[int] | None:
    """Return the counts of explicit buckets: those of a record, or a list that was computed, None if it can't be."""
    counts = values.counts
    return list(struct.unpack(f"<{len(counts) // 8}Q", counts)) if isinstance(counts, bytes) else counts


def widen(values: Values, others: Values) -> None:
    """Widen the range of positions, min and max by those of other values."""
    for name, choose in WIDENING.get(values.type, ()):
        one, other = getattr(values, name), getattr(others, name)
        if other is not None:
            setattr(values, name, other if one is None else choose(one, other))


def require_valid(values: Values) -> None:
    """Require that the sketch has as many values as a distribution counts. Store huge whole numbers as floats.

    Raises:
        ValueError, OverflowError: it has not, or a number is beyond the range of floats.
    """
    for name in fields_of(values.type):
        number = getattr(values, name)
        if isinstance(number, int) and not MIN_INT64 <= number <= MAX_INT64:
            setattr(values, name, float(number))
    sketch = values.sketch if isinstance(values, Histogram) else None
    if sketch is not None and sketches.number_of(sketch) != values.count:
        raise ValueError("the sketch has another number of values")


class Block:
    """The metrics of a snapshot in which nothing was refused, in its order, with their `rows` in the life.

    Most metrics are counters, so that the counts are compared at once.
    """

    def __init__(self, snapshot: Snapshot, rows: list[Row]) -> None:
        self._rows = rows
        self._spelling = _spelling(snapshot.metrics)
        self._counters = [at for at, one in enumerate(snapshot.metrics) if one.type == "counter"]
        self._others = [at for at, one in enumerate(snapshot.metrics) if one.type != "counter"]
        self._counts = self._counts_of(snapshot.metrics)

    def _counts_of(self, metrics: list[Values]) -> list[int]:
        return [metrics[at].count for at in self._counters]

    def replace(self, snapshot: Snapshot) -> bool:
        """Replace all values by those of a newer snapshot. Return False, and do nothing, if it does more than that."""
        metrics, rows = snapshot.metrics, self._rows
        if _spelling(metrics) != self._spelling:
            return False
        counts = self._counts_of(metrics)
        others = [(metrics[at], rows[at]) for at in self._others if metrics[at] != rows[at].values]
        if any(map(lt, counts, self._counts)) or not all(_replaces(new, row.values) for new, row in others):
            return False
        for new, row in others:
            widen(new, row.values)
            row.values = new
        for at in self._counters:
            rows[at].values = metrics[at]
        for row in rows:
            row.seq = snapshot.seq
        self._counts = counts
        return True


def _spelling(metrics: list[Values]) -> tuple[list[type], list[str], list[dict[str, str]]]:
    return list(map(type, metrics)), list(map(_NAME, metrics)), list(map(_TAGS, metrics))


def _replaces(new: Values, old: Values) -> bool:
    """Return whether `new` is valid and its count does not fall. Type, name and tags are the same."""
    try:
        require_valid(new)
    except (ValueError, OverflowError):
        return False
    return bool(main_count(new) >= main_count(old))


@dataclass(slots=True, eq=False)
class Life:
    """One life. Times are those of the clock of its shard and partition, in ms.

    `active_ms` is the time of its last record that was not stale. It is forgotten by `keep_ms`: the time of its last
    record, or of its ULID if that is later. `is_short` tells whether it is that of the short form, which is never
    forgotten. `current_parts` are the parts whose newest snapshot is from `partition`. `complete` tells whether
    snapshots have all metrics of a part, `created_ms` is the time of its ULID, and `limits` are those that the life has
    reached. `bytes` are those of the names and tags of its rows. `blocks` has the newest snapshot of each part, if
    nothing of it was refused and no row was removed since. `baselines` has the values of metrics that were counted
    before their stream of OTLP began. A `forgotten` one stands for all forgotten lives of a shard.
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
    blocks: dict[int, Block] = field(default_factory=dict)
    baselines: dict[Identity, Values] = field(default_factory=dict)

    @property
    def deadline_ms(self) -> int:
        """The partition's time from which on the life is silent: three intervals after `active_ms` (rule 5)."""
        return self.active_ms + 3 * self.every_ms

    def counted(self, identity: Identity) -> Row:
        """Return the row of a metric without what was counted before its stream began."""
        row, base = self.rows[identity], self.baselines.get(identity)
        if base is None:
            return row
        values, kind = row.values, identity[1]
        is_above = main_count(values) > main_count(base)
        rest: dict[str, Any] = {}  # without the sketch, which has the earlier values, too
        if kind == "buckets":
            pairs = zip(counts_of(values), counts_of(base), strict=True)  # type: ignore[arg-type]  # those of records
            less = [one - other for one, other in pairs]
            rest["counts"] = [0] * len(less) if not is_above else None if min(less) < 0 else less
        for name in ADDED[kind][0] if kind != "buckets" else ("count",):
            pair = getattr(values, name), getattr(base, name)
            rest[name] = (None if None in pair else _difference(*pair)) if is_above else 0 if name == "count" else 0.0
        if not is_above:
            rest |= {name: None for name, _ in WIDENING.get(kind, ())}
        return Row(computed(kind, {name: getattr(values, name) for name in fields_of(kind)} | rest), row.part, row.seq)

    def newest(self, row: Row) -> bool:
        """Return whether a row is current while the life is living: the newest snapshot has it, or is not complete."""
        return not self.complete or self.seqs.get(row.part, 0) == row.seq
