"""The state of the replay, lives and their rows, and the sum of a metric over them."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from fractions import Fraction
from operator import attrgetter, lt
from typing import TYPE_CHECKING, Any

from tallystream_aggregator.verify import sketches
from tallystream_aggregator.verify.decode import ABSENT, FIELDS, MAX_DEPTH, NO_SKETCH, RATES, Values

if TYPE_CHECKING:
    from collections.abc import Iterable

    import msgspec

    from tallystream_aggregator.verify.decode import Identity, Metric, Ordinary

_WITH_SKETCH = [kind for kind, fields in FIELDS.items() if "sketch" in fields[1]]
_SPELLED, _COUNT = attrgetter("type", "name", "tags"), attrgetter("count")


@dataclass(frozen=True, slots=True)
class Settings:
    """The numbers in the rules: times in ms, sizes in bytes.

    Options are `forget_after_ms`, `max_table_bytes` and `otlp_topics`.
    """

    forget_after_ms: int = 7 * 86_400_000
    short_form_every_ms: int = 60_000
    max_record_bytes: int = 1_048_576
    max_metrics: int = 10_000
    max_table_bytes: int = 2**30
    """An app may have three quarters of it (docs/table.md, "Limits")."""
    otlp_topics: tuple[str, ...] = ()
    """The topics of OTLP metrics."""


@dataclass(slots=True)
class Row:
    """One metric of one life: its newest values, and the part and seq of their snapshot.

    `last` is the last value of the short form. A row of forgotten lives has the values of `lives` of them.
    """

    values: Values
    part: int = 0
    seq: int = 0
    last: int = 0
    lives: int = 1


class BinnedValues(Values):
    """Values whose sketch is decoded: those of a snapshot that is not ordinary, and those of several rows."""

    bins: sketches.Bins | None = None


def values_of(metric: Metric) -> Values:
    """Return the values of a metric."""
    numbers = dict(metric.numbers)
    return BinnedValues(metric.identity[1], bins=numbers.pop("sketch", None), **numbers)


def main_count(values: Values) -> Any:
    """Return what must not fall within a life: the count, the sum of a float counter, ABSENT for other types."""
    return values.sum if values.type == "float_counter" else values.count


class Block:
    """The metrics of a snapshot in which nothing was refused, in its order. `rows` are theirs, which only this changes.

    Most metrics are counters, so that the counts are compared at once.
    """

    def __init__(self, identities: list[Identity], rows: list[Row]) -> None:
        self._rows = rows
        self._identities = identities
        self._spelled: list[Any] | None = None  # as they are in the snapshots
        self._counts = [row.values.count for row in rows]
        self._others = [at for at, row in enumerate(rows) if row.values.type != "counter"]

    def replace(self, snapshot: Ordinary) -> bool:
        """Replace all values by those of a newer snapshot. Return False, and do nothing, if it does more than that."""
        metrics = snapshot.metrics
        spelled = list(map(_SPELLED, metrics))
        if spelled != self._spelled and not self._learn(spelled):
            return False
        counts = list(map(_COUNT, metrics))
        if any(map(lt, counts, self._counts)):
            return False
        if not all(_replaces(metrics[at], self._rows[at].values) for at in self._others):
            return False
        if any(values.sketch is not NO_SKETCH and values.type not in _WITH_SKETCH for values in metrics):
            return False  # it is ignored, but may be nested too deep
        self._counts = counts
        for values, row in zip(metrics, self._rows, strict=True):
            row.values, row.seq = values, snapshot.seq
        return True

    def _learn(self, spelled: list[tuple[str, str, msgspec.Raw]]) -> bool:
        """Learn how snapshots spell the metrics. Return False if it is not those."""
        try:
            read = [(kind, name, tuple(sorted(json.loads(bytes(tags)).items()))) for kind, name, tags in spelled]
        except (ValueError, TypeError, AttributeError, RecursionError):
            return False
        if read != [identity[1:] for identity in self._identities]:
            return False
        self._spelled = [(kind, name, tags.copy()) for kind, name, tags in spelled]  # else it keeps the whole record
        return True


def _replaces(new: Values, old: Values) -> bool:
    """Return whether `new` is valid, and is all that is left of both.

    Their type, name and tags are the same, and the count does not fall.
    """
    if _missing(new) != _missing(old) or (new.type == "float_counter" and new.sum < old.sum):  # type: ignore[operator]
        return False
    if old.min is not None and new.min > old.min:  # type: ignore[operator]
        return False
    if old.max is not None and new.max < old.max:  # type: ignore[operator]
        return False
    if old.start is not None and (new.start > old.start or new.position < old.position):  # type: ignore[operator]
        return False
    if new.sketch == NO_SKETCH:
        return True
    is_same = new.count == old.count and new.sketch == old.sketch
    return is_same or _number_in(new.sketch) == new.count


def _number_in(sketch: msgspec.Raw) -> int:
    """Return how many values a sketch has, ABSENT if it is none or may be nested too deep."""
    if bytes(sketch).count(b"{") + bytes(sketch).count(b"[") > MAX_DEPTH - 3:
        return ABSENT
    try:
        return sum(sketches.decode(json.loads(bytes(sketch))).values())
    except (ValueError, RecursionError):
        return ABSENT


def _missing(one: Values) -> tuple[bool, ...]:
    return (
        one.count == ABSENT,
        one.sum is None,
        one.value is None,
        one.min is None,
        one.max is None,
        one.start is None,
        one.position is None,
    )


@dataclass(slots=True, eq=False)
class Life:
    """One life. Times are those of the clock of its shard and partition, in ms.

    `active_ms` is that of its last record that was not stale. It is forgotten by `keep_ms`, that of its last record, or
    the time of its ULID if that is later. `is_short` tells whether it is that of the short form, which is never
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
        values = row.values
        count = ABSENT if values.count == ABSENT else max(values.count - base.count, 0)
        rest = None if values.sum is None or base.sum is None else values.sum - base.sum
        counted = BinnedValues(values.type, count=count, sum=rest)
        if main_count(values) > main_count(base):
            counted.min, counted.max = values.min, values.max
        else:
            counted.sum = None if values.type == "counter" else 0.0
        return Row(counted, row.part, row.seq)

    def newest(self, row: Row) -> bool:
        """Return whether a row is current while the life is living: the newest snapshot has it, or is not complete."""
        return not self.complete or self.seqs.get(row.part, 0) == row.seq


STAYING = {"counter", "float_counter", "meter", "histogram", "timer", "position"}
"""Types whose numbers stay in the sum when a life is forgotten."""
EXTREMES = (("min", min), ("start", min), ("max", max), ("position", max))
MIN_INT64, MAX_INT64 = -(2**63), 2**63 - 1


def sum_of(kind: str, held: Iterable[tuple[Life, Row, bool]]) -> dict[str, Any]:
    """Return the fields of one sum. `held` has each life with its row, and whether the life is living.

    A number beyond its range is replaced by the largest or smallest one, and `overflow` is true (rule 4).
    """
    held = list(held)
    rows = [row.values for _, row, _ in held]
    now = [(life, row.values) for life, row, living in held if living and life.newest(row)]
    fields: dict[str, Any] = {}
    for name, number in _added(kind, rows, [values for _, values in now]).items():
        fields[name], beyond = _within(number)
        if beyond:
            fields["overflow"] = True
    fields |= extremes(kind, rows)
    if kind in ("gauge", "updown"):
        numbers: list[Any] = [values.value for _, values in now]
        fields |= {"number": len(numbers)} | ({"min": min(numbers), "max": max(numbers)} if numbers else {})
        if numbers and "overflow" not in fields:
            fields["mean"] = fields["sum"] / len(numbers)
    if kind in ("histogram", "timer") and "overflow" not in fields:
        fields |= _quantiles(rows)
    fields |= {"lives": len(now), "instances": len({life.instance for life, _ in now})}
    return fields | {"retired": sum(row.lives for life, row, _ in held if life.forgotten)}


def extremes(kind: str, rows: Iterable[Values]) -> dict[str, Any]:
    """Return the widest of those min, max and positions that a type has. The values may have others, too."""
    found: dict[str, Any] = {}
    for name, choose in EXTREMES:
        if not any(name in fields for fields in FIELDS[kind]):
            continue
        numbers = [number for values in rows if (number := getattr(values, name)) is not None]
        found |= {name: choose(numbers)} if numbers else {}
    return found


def merged(kind: str, rows: list[Row]) -> Row:
    """Return a row with the values of these rows, which forgotten lives have: nothing is rounded."""
    values = [row.values for row in rows]
    numbers = {"count": ABSENT} | _added(kind, values, []) | extremes(kind, values)
    return Row(BinnedValues(**numbers, bins=_all_bins(values)), lives=sum(row.lives for row in rows))


def _added(kind: str, rows: list[Values], now: list[Values]) -> dict[str, Any]:
    """Return the exact sums: counts over all lives, momentary values over the living ones."""
    exact: dict[str, Any] = {}
    if kind in ("counter", "meter", "histogram", "timer"):
        exact["count"] = sum(values.count for values in rows)
    if kind in ("float_counter", "histogram", "timer"):
        unknown = not rows or any(values.sum is None for values in rows)
        exact["sum"] = None if unknown else _add(rows, "sum")
    if kind in ("meter", "timer") and now:
        exact |= {rate: _add(now, rate) for rate in RATES}
    if kind in ("gauge", "updown") and now:
        exact["sum"] = _add(now, "value")
    return exact


def _add(rows: list[Values], name: str) -> Any:
    """Return the sum of a field. Floats are added as fractions, so nothing is rounded."""
    numbers = (getattr(values, name) for values in rows)
    return sum((Fraction(number) if isinstance(number, float) else number for number in numbers), start=0)


def _all_bins(rows: list[Values]) -> sketches.Bins:
    bins: sketches.Bins = {}
    for values in rows:
        if isinstance(values, BinnedValues):
            sketches.add(bins, values.bins or {})
        elif values.sketch != NO_SKETCH:
            sketches.add(bins, sketches.decode(json.loads(bytes(values.sketch))))
    return bins


def _quantiles(rows: list[Values]) -> dict[str, Any]:
    """Return the quantiles and the merged sketch as (scale, buckets), if the sketches have all values."""
    bins = _all_bins(rows)
    count = sum(values.count for values in rows)
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
