"""Reads sums, positions rows and dead letters as in docs/record.md, with the standard library. Compares fields."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tallystream.record import Sketch
from tallystream_aggregator.verify import sketches
from tallystream_aggregator.verify.lives import Tags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_aggregator.verify.decode import Identity

PartitionName = str
"""A topic and the number of a partition, as in "metrics:0"."""

Ends = dict[PartitionName, int]
"""partition → the next offset. All records below it are included."""

Place = tuple[PartitionName, int]
"""The partition and the offset of a record."""

Event = tuple[PartitionName, int, str, str, str, str, int, str]
"""The partition and the offset of its record, and (kind, app, instance, life, ts, detail)."""

MAX_SHARDS = 1024

_NO_SUM = (TypeError, KeyError, AttributeError, ValueError, OverflowError, RecursionError)
"""The errors of reading any JSON: OverflowError for an infinite number, RecursionError for deep nesting."""


def by_partition(offsets: Mapping[str, Mapping[Any, int]]) -> Ends:
    """Return offsets by topic and partition number as offsets by partition."""
    return {f"{topic}:{int(p)}": int(offset) for topic, ps in offsets.items() for p, offset in ps.items()}


def is_within(ends: Ends, others: Ends) -> bool:
    """Return whether everything below `ends` is below the others."""
    return all(end <= others.get(partition, 0) for partition, end in ends.items())


class Moment(NamedTuple):
    """A moment at which sums were published: how far each shard had read.

    The combiner's has neither the tags nor what follows. `begin` are the offsets at which the table began, without
    those that are 0. `last_records` are those of each partition that the first shard has read: the offset, and the
    epoch of the leader that appended it.
    """

    shards: tuple[Ends, ...]
    tags: Tags = Tags()
    begin: Ends = {}  # noqa: RUF012 (a tuple's default is never changed)
    last_records: Mapping[PartitionName, tuple[int, int]] = {}

    @property
    def ends(self) -> Ends:
        """How far all shards had read the partitions that all of them read: the offsets that the sums name."""
        first, *others = self.shards
        return {
            p: min(end, *(one[p] for one in others)) if others else end
            for p, end in first.items()
            if all(p in one for one in others)
        }


def moment(value: bytes | None) -> Moment | None:
    """Return the moment in a positions row of a shard, or of the combiner; None if it has none yet.

    Raises:
        ValueError: it is no positions row.
    """
    try:
        content = json.loads(value or b"")
        tags, of = content.get("sum_tags", {}), int(content["of"])
        if not 0 < of <= MAX_SHARDS:
            raise ValueError(f"a table has at most {MAX_SHARDS} shards")
        keep = tags.get("keep")
        found = Tags(frozenset(tags.get("drop", ())), None if keep is None else frozenset(keep))
        if int(content["shard"]) < of:
            begin = by_partition(content.get("begin", {}))
            last = {
                f"{topic}:{int(p)}": (int(offset), int(epoch))
                for topic, ps in content.get("last_records", {}).items()
                for p, (offset, epoch) in ps.items()
            }
            return Moment((by_partition(content["positions"]),) * of, found, begin, last)
        shards = content.get("shards", {})
        return Moment(tuple(by_partition(shards[str(n)]) for n in range(of)), found) if shards else None
    except _NO_SUM as error:
        raise ValueError(f"no positions row: {error!r}") from error


class PublishedSum(NamedTuple):
    """One sum: `fields` as in the JSON. It includes what is below `ends`, which is empty if it names no offsets."""

    identity: Identity
    fields: dict[str, Any]
    ends: Ends


def read_sum(value: bytes) -> dict[str, Any]:
    """Return the fields of a sum, with the quantiles that it leaves out because they equal the one before them."""
    content: dict[str, Any] = json.loads(value)
    for before, quantile in pairwise(sketches.SHARES):
        if before in content:
            content.setdefault(quantile, content[before])
    return content


def parse(key: bytes | None, value: bytes) -> PublishedSum:
    """Return a record of `metrics-agg`.

    Raises:
        ValueError: it is not a sum.
    """
    try:
        app, kind, name, tags = json.loads(key or b"")
        identity = (str(app), str(kind), str(name), tuple(sorted((str(n), str(v)) for n, v in tags)))
        content = read_sum(value)
        ends = {partition: last + 1 for partition, last in by_partition(content.get("offsets", {})).items()}
        int(content["ts"])
        return PublishedSum(identity, content, ends)
    except _NO_SUM as error:
        raise ValueError(f"no sum: {error!r}") from error


@dataclass(slots=True)
class PublishedSums:
    """Collects sums: the `newest` of each metric up to `end`.

    `later` has the sums that are not up to `end`. `unreadable` counts records that are not sums.
    """

    end: Ends
    newest: dict[Identity, PublishedSum] = field(default_factory=dict)
    later: list[PublishedSum] = field(default_factory=list)
    unreadable: int = 0

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Add the next record of `metrics-agg`. A null value is ignored."""
        if value is None:
            return
        try:
            row = parse(key, value)
        except ValueError:
            self.unreadable += 1
            return
        if not row.ends or not is_within(row.ends, self.end):
            self.later.append(row)
            return
        self.newest[row.identity] = row


def refused_record(value: bytes | None) -> Place | None:
    """Return the partition and the offset of a dead letter's record, None if the dead letter has none."""
    try:
        content = json.loads(value or b"")
        return f"{content['topic']}:{int(content['partition'])}", int(content["offset"])
    except _NO_SUM:
        return None


def event(value: bytes | None) -> Event | None:
    """Return (partition, offset, kind, app, instance, life, ts, detail) of an event, None if it is none."""
    try:
        content = json.loads(value or b"")
        texts = (str(content[name]) for name in ("kind", "app", "instance", "life"))
        place = f"{content['topic']}:{int(content['partition'])}", int(content["offset"])
        kind, app, instance, life = texts
        return (*place, kind, app, instance, life, int(content["ts"]), str(content.get("detail", "")))
    except _NO_SUM:
        return None


NO_NUMBERS = {"v", "app", "name", "type", "tags", "ts", "offsets"}
"""Fields of a sum that name it and its moment."""

ROUNDED = {*sketches.SHARES, "mean"}
"""Fields computed in floating point, compared to six digits. Adjacent buckets of a sketch differ by about 2 %."""

ZERO_IF_ABSENT = {"lives", "instances", "retired", "ended", "silent"}

Unequal = dict[str, tuple[Any, Any]]
"""field → its published value and the replayed one. None means absent."""


def unequal(published: Mapping[str, Any], replayed: Mapping[str, Any]) -> Unequal:
    """Return the fields that differ. Numbers are compared exactly, those of ROUNDED to six digits.

    Sketches are compared by their buckets.
    """
    names = [name for name in {**replayed, **published} if name not in NO_NUMBERS]
    pairs = {name: (published.get(name), replayed.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if not _is_same(name, *pair)}


def _is_same(field: str, published: Any, replayed: Any) -> bool:
    if field in ("sketch", "bounds", "counts"):
        return bool((_buckets(published) if field == "sketch" else published) == replayed)
    if field == "overflow":
        return (published or False) is (replayed or False)
    if field in ZERO_IF_ABSENT:
        published, replayed = published or 0, replayed or 0
    if isinstance(published, bool) or not isinstance(published, (int, float, type(None))):
        return False
    if field in ROUNDED and published is not None and replayed is not None:
        try:
            return math.isclose(published, replayed, rel_tol=1e-6)
        except OverflowError:  # an integer beyond the range of floats
            return False
    return bool(published == replayed)


def _buckets(sketch: Any) -> tuple[Any, Any] | None:
    """Return the scale and the buckets, None if there is no sketch. What is no sketch equals none."""
    if sketch is None:
        return None
    try:
        found = msgspec.convert(sketch, Sketch)
        sketches.number_of(found)
    except ValueError:
        return "no sketch", sketch
    return found.scale, sketches.bins_of(found)
