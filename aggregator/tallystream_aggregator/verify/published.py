"""Reads the rows of `metrics-agg` as in docs/topics.md, with the standard library, and compares their fields."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystream_aggregator.verify import sketches

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream_aggregator.verify.decode import Identity

PartitionName = str
"""A topic and the number of a partition, as in "metrics:0"."""

Ends = dict[PartitionName, int]
"""partition → the next offset. All records below it are included."""


class Batch(NamedTuple):
    """A finished batch of the ledger, with its start and end offsets.

    `start` is None if unknown. `begins` is true for the first batch of a checkpoint that the ledger has. `shards` is
    None if the ledger does not have it. If the batch `follows_gap`, the ledger lacks the batches before it, and `start`
    is that of the first of them. `forget_after_ms` is that of its writer, 0 if unknown.
    """

    epoch: int
    number: int
    start: Ends | None
    end: Ends
    begins: bool = False
    shards: int | None = 1
    follows_gap: bool = False
    forget_after_ms: int = 0


_NO_SUM = (TypeError, KeyError, AttributeError, ValueError, OverflowError, RecursionError)
"""The errors of reading any JSON: OverflowError for an infinite number, RecursionError for deep nesting."""


def by_partition(offsets: Mapping[str, Mapping[Any, int]]) -> Ends:
    """Return offsets by topic and partition number as offsets by partition."""
    return {f"{topic}:{int(p)}": int(offset) for topic, ps in offsets.items() for p, offset in ps.items()}


@dataclass(frozen=True, slots=True)
class PublishedSum:
    """One row: `fields` as in the JSON, `version` as (epoch, batch). `ends` is None if the row has no offsets."""

    identity: Identity
    fields: dict[str, Any]
    ts_ms: int
    ends: Ends | None
    version: tuple[int, int]

    def within(self, ends: Ends) -> bool:
        """Return whether everything that it includes is below `ends`."""
        return self.ends is not None and all(end <= ends.get(p, 0) for p, end in self.ends.items())


def parse(key: bytes | None, value: bytes) -> PublishedSum:
    """Return a row of `metrics-agg`.

    Raises:
        ValueError: it is not a sum.
    """
    try:
        app, kind, name, tags = json.loads(key or b"")
        identity = (str(app), str(kind), str(name), tuple(sorted((str(n), str(v)) for n, v in tags)))
        content = json.loads(value)
        ends = {partition: last + 1 for partition, last in by_partition(content.get("offsets", {})).items()}
        written = (int(content.get("epoch", 0)), int(content.get("batch", 0)))
        return PublishedSum(identity, content, int(content["ts"]), ends or None, written)
    except _NO_SUM as error:
        raise ValueError(f"no sum: {error!r}") from error


@dataclass(slots=True)
class PublishedSums:
    """Collects rows: the `newest` of each metric up to `end`, and with `begin` all rows between the two in `period`.

    The newest row has the highest (epoch, batch). `later` are the metrics that have a row after `end`. No aggregator
    has written a row whose epoch is above `bound`, the highest of the ledger: it replaces no other row, and `foreign`
    has the last one of each metric. If `bound` is None, every epoch is accepted. `unreadable` counts records that are
    not sums.
    """

    end: Ends | None = None
    begin: Ends | None = None
    newest: dict[Identity, PublishedSum] = field(default_factory=dict)
    period: list[PublishedSum] = field(default_factory=list)
    later: set[Identity] = field(default_factory=set)
    unreadable: int = 0
    bound: int | None = None
    foreign: dict[Identity, PublishedSum] = field(default_factory=dict)

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Add one record of `metrics-agg`. A null value is ignored."""
        if value is None:
            return
        try:
            row = parse(key, value)
        except ValueError:
            self.unreadable += 1
            return
        if self.bound is not None and row.version[0] > self.bound:
            self.foreign[row.identity] = row
            return
        if self.end is not None and not row.within(self.end):
            self.later.add(row.identity)
            return
        if self.begin is not None and not row.within(self.begin):
            self.period.append(row)
        before = self.newest.get(row.identity)
        if before is None or row.version >= before.version:
            self.newest[row.identity] = row

    def to_compare(self) -> list[PublishedSum]:
        """Return the rows to compare: the newest ones, or those of the period."""
        return list(self.newest.values()) if self.begin is None else self.period


def refused_record(value: bytes | None) -> tuple[PartitionName, int] | None:
    """Return the partition and the offset of a dead letter's record, None if the dead letter has none."""
    try:
        content = json.loads(value or b"")
        return f"{content['topic']}:{int(content['partition'])}", int(content["offset"])
    except _NO_SUM:
        return None


QUANTILES = ("p50", "p75", "p95", "p98", "p99", "p999")
LASTING = ("count", "sum", "min", "max", "start", "position", *QUANTILES, "sketch", "retired")
"""Fields that need no living lives, except for gauges and updowns."""

RATES = ("mean_rate", "m1_rate", "m5_rate", "m15_rate")
MOMENTARY = ("mean", "number", *RATES, "lives", "instances", "overflow")
ROUNDED = {*QUANTILES, "mean"}
"""Fields computed in floating point, compared to nine digits. Adjacent buckets of a sketch differ by about 1 %."""

ZERO_IF_ABSENT = {"lives", "instances", "retired"}


class Unequal(NamedTuple):
    """A field that differs. None means absent."""

    field: str
    published: Any
    replayed: Any


def unequal(
    published: Mapping[str, Any], replayed: Mapping[str, Any], fields: Iterable[str] = (*LASTING, *MOMENTARY)
) -> list[Unequal]:
    """Return the fields that differ. Numbers are compared exactly, those of ROUNDED to nine digits.

    Sketches are compared by their buckets. A sum that an earlier version published has none.
    """
    found = []
    for name in fields:
        theirs, ours = published.get(name), replayed.get(name)
        if name in ZERO_IF_ABSENT:
            theirs, ours = theirs or 0, ours or 0
        same = _is_same_sketch(theirs, ours) if name == "sketch" else _is_same(name, theirs, ours)
        if not same:
            found.append(Unequal(name, theirs, ours))
    return found


def _is_same(field: str, published: Any, replayed: Any) -> bool:
    if field == "overflow":
        return (published or False) is (replayed or False)
    if isinstance(published, bool) or not isinstance(published, (int, float, type(None))):
        return False
    if field in ROUNDED and published is not None and replayed is not None:
        try:
            return math.isclose(published, replayed, rel_tol=1e-9)
        except OverflowError:  # an integer beyond the range of floats
            return False
    return bool(published == replayed)


def _is_same_sketch(published: Any, replayed: Any) -> bool:
    return published is None or _buckets(published) == _buckets(replayed)


def _buckets(sketch: Any) -> tuple[Any, sketches.Bins] | None:
    """Return the scale and the buckets, None if it is not a sketch."""
    try:
        return sketch["scale"], sketches.decode(sketch)
    except (ValueError, TypeError, KeyError):
        return None
