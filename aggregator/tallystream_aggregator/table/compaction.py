"""Compact a backlog: drop records that later ones supersede, without changing any result of the table.

A run is a series of records of one counter of the short form, or of one part of a life, each of which replaces the one
before it. The first and the last record of a run are kept. The newest record waits. If the next one continues the run,
the waiting one is dropped. Otherwise it is kept, with the number of records that it supersedes. If the table accepts
the first record of a run completely, it accepts all of them. A kept record has the offset of the first one. If the
table did not accept that one completely, it reads the dropped records again (`expand`). docs/table.md, "Compaction",
has the proof for each rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tallystream.record import Counter, FloatCounter, Histogram, Metric, Position, ShortForm, identity
from tallystream_aggregator.table.arithmetic.metric_types import stored_values
from tallystream_aggregator.table.arithmetic.sketches import encode_sketch
from tallystream_aggregator.table.clock_record import CLOCK_KEY
from tallystream_aggregator.table.decode import (
    DecodedSnapshot,
    Forget,
    Record,
    Refusal,
    Superseded,
    read_key,
    read_short_form,
    read_value,
)
from tallystream_aggregator.table.limits import out_of_bounds
from tallystream_aggregator.table.shards import shard_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tallystream.record import Snapshot
    from tallystream_aggregator.table.limits import TableSettings


class ExpansionNeededError(Exception):
    """The table refused a part of a record before superseded ones: the records of `instances` are read again."""

    def __init__(self, instances: set[str]) -> None:
        super().__init__(f"the records of {len(instances)} instances are read again without compaction")
        self.instances = instances


class Span(NamedTuple):
    """Offsets `first` to `last`, both included, of one partition."""

    topic: str
    partition: int
    first: int
    last: int


def expand(records: Sequence[Record], instances: set[str], read: Callable[[Span], Iterable[Record]]) -> list[Record]:
    """Return the records of a batch with all dropped records of `instances`.

    `read` returns all records of a span, in offset order, as the topic has them, or raises.
    """
    keys = {instance.encode() for instance in instances}
    compacted: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        if record.key in keys:
            compacted.setdefault((record.topic, record.partition), []).append(record)
    expanded = [record for record in records if record.key not in keys]
    for (topic, partition), mine in compacted.items():
        mine.sort(key=lambda record: record.offset)
        reread = read(Span(topic, partition, mine[0].offset, mine[-1].offset))
        expanded += [record for record in _with_clock(reread, mine[0].clock_ms) if record.key in keys]
    return expanded


def _with_clock(records: Iterable[Record], clock: int) -> Iterator[Record]:
    """Give each record the clock of its partition: the records that advanced it may be those of other instances."""
    for record in records:
        clock = max(clock, record.timestamp_ms)
        yield record._replace(clock_ms=clock)


RawRecord = tuple[int, int, bytes | None, bytes | None]
"""(offset, append time in epoch ms, key, value) of a record"""


class TopicPartition(NamedTuple):
    """The name of a topic and the number of a partition."""

    topic: str
    partition: int


class Run:
    """The run of a counter of the short form. `value` is its newest value.

    `waiting` is the record with that value, None if it was kept, and `clock` the clock at that record. `superseded` is
    the number of records that it supersedes, -1 if no record waits. `first` and `after` are the offset and the value of
    the last record that was kept.
    """

    __slots__ = ("after", "clock", "first", "superseded", "value", "waiting")

    def __init__(self, value: int) -> None:
        self.waiting: RawRecord | None = None
        self.value = self.after = value
        self.clock = self.first = 0
        self.superseded = -1

    def begin(self, offset: int, value: int) -> None:
        """Begin with a record that is kept."""
        self.first, self.value, self.after = offset, value, value

    def extend(self, row: RawRecord, clock: int, value: int) -> None:
        """Supersede the waiting record by a newer one."""
        self.superseded += 1
        self.waiting, self.clock, self.value = row, clock, value

    def end(self, partition: TopicPartition) -> list[Record]:
        """Return the waiting record, if there is one. The next record may continue the run after it."""
        if self.waiting is None:
            return []
        superseded = Superseded(self.superseded, self.after, self.first) if self.superseded else None
        kept = kept_record(partition, self.waiting, self.clock, superseded)
        self.waiting, self.superseded = None, -1
        self.begin(kept.offset, self.value)
        return [kept]


class SnapshotRun(Run):
    """The run of a part of a life. `value` is the highest seq, `metrics` those of its snapshot, None without a run.

    `has_decreased` tells whether a metric's count was ever lower than in the snapshot before. `complete` is that of the
    snapshots.
    """

    __slots__ = ("complete", "has_decreased", "metrics")

    def __init__(self) -> None:
        super().__init__(0)
        self.metrics: Sequence[Metric] | None = None
        self.has_decreased = False
        self.complete = True

    def continues(self, snapshot: Snapshot) -> bool:
        """Tell whether a snapshot continues the run, so that the waiting one can be dropped.

        It does if it has a higher seq and the same metrics in the same order, none of them lower or refused. After a
        count has decreased, no run continues: the table refuses the metric until its count reaches the highest one.
        """
        metrics = self.metrics
        if self.has_decreased or metrics is None or snapshot.seq <= self.value or len(snapshot.metrics) != len(metrics):
            return False
        if snapshot.complete != self.complete:
            return False
        for new, old in zip(snapshot.metrics, metrics, strict=True):
            kind = new.__class__
            if kind is not old.__class__ or new.name != old.name or new.tags != old.tags:
                return False
            if kind is Counter:
                if new.count < old.count:  # type: ignore[union-attr]
                    return False
            elif count_decreases(new, old) or range_narrows(new, old) or not is_accepted(new):
                return False
        return True

    def decreases_in(self, snapshot: Snapshot) -> bool:
        """Tell whether a snapshot has a lower count of a metric than the one before. Rule 4 refuses that metric."""
        last = {identity(old.name, old.type, old.tags): old for old in self.metrics or ()}
        found = ((new, last.get(identity(new.name, new.type, new.tags))) for new in snapshot.metrics)
        return any(old is not None and count_decreases(new, old) for new, old in found)


def kept_record(partition: TopicPartition, row: RawRecord, clock: int, superseded: Superseded | None = None) -> Record:
    """Return a kept record."""
    return Record(partition.topic, partition.partition, *row, clock, superseded)


def is_accepted_completely(snapshot: Snapshot) -> bool:
    """Tell whether the table accepts a snapshot completely if no earlier record matters."""
    metrics = snapshot.metrics
    return len({identity(m.name, m.type, m.tags) for m in metrics}) == len(metrics) and all(map(is_accepted, metrics))


def count_decreases(new: Metric, old: Metric) -> bool:
    """Tell whether a count or a position of a newer metric of the same identity is lower."""
    if isinstance(new, Position):
        return new.position < old.position or new.start > old.start  # type: ignore[union-attr]
    if isinstance(new, FloatCounter):
        return new.sum < old.sum  # type: ignore[union-attr]
    return hasattr(new, "count") and new.count < old.count  # type: ignore[union-attr]


def range_narrows(new: Metric, old: Metric) -> bool:
    """Tell whether a newer histogram or timer has a greater min or a smaller max. Within a life both only widen."""
    if not isinstance(new, Histogram) or not isinstance(old, Histogram):
        return False
    return (old.min is not None and (new.min is None or new.min > old.min)) or (
        old.max is not None and (new.max is None or new.max < old.max)
    )


def is_accepted(metric: Metric) -> bool:
    """Tell whether the table accepts a metric by itself: its numbers can be summed and its sketch can be read."""
    try:
        stored_values(metric)
        encode_sketch(metric)
    except (ValueError, OverflowError):
        return False
    return True


MAX_RUNS = 500_000
"""The most runs at a time, which bounds memory. At this number, all runs end and the next records begin new ones."""

CounterKey = str | tuple[str, tuple[tuple[str, str], ...]]
"""The name of a counter of the short form, and its sorted tags if it has any."""


class InstanceRuns:
    """The runs of one key. `readable` tells whether the key is an instance ID."""

    __slots__ = ("counters", "readable", "shard", "snapshots")

    def __init__(self, key: bytes | None, shards: int) -> None:
        self.shard = shard_of(key, shards)
        self.readable = not isinstance(read_key(key), Refusal)
        self.counters: dict[CounterKey, Run] = {}
        self.snapshots: dict[tuple[str, str, int], SnapshotRun] = {}


class Compactor:
    """Compacts the records of one partition for a table in `shards`. Single use."""

    def __init__(self, topic: str, partition: int, settings: TableSettings, shards: int = 1) -> None:
        self._partition = TopicPartition(topic, partition)
        self._settings = settings
        self._clocks = [0] * shards  # by shard, the highest append time so far
        self._instances: dict[bytes | None, InstanceRuns] = {}
        self._runs = 0

    def add(self, rows: Iterable[RawRecord]) -> list[Record]:  # noqa: C901 (a call takes long for each of millions)
        """Add records in offset order. Return those that are certain to be kept, in any order."""
        kept: list[Record] = []
        instances, clocks, partition = self._instances, self._clocks, self._partition
        max_bytes, max_metrics = self._settings.max_record_bytes, self._settings.max_metrics
        for row in rows:
            offset, at_ms, key, value = row
            if key == CLOCK_KEY:  # the lives that it forgets need their newest records before it
                clocks[:] = [max(at_ms, clock) for clock in clocks]
                kept += [*self.end(), kept_record(partition, row, at_ms)]
                continue
            instance = instances.get(key)
            if instance is None:
                instance = instances[key] = InstanceRuns(key, len(clocks))
                self._runs += 1
            clock = clocks[instance.shard]
            if at_ms > clock:
                clock = clocks[instance.shard] = at_ms
            if value is None:
                kept += self._remove(instance, Forget())
                kept.append(kept_record(partition, row, clock))
                continue
            if len(value) > max_bytes or not instance.readable:
                kept.append(kept_record(partition, row, clock))
                continue
            message = read_short_form(value) or read_value(value, max_metrics)
            if isinstance(message, ShortForm):
                tags = message.tags
                counter = (message.name, tuple(sorted(tags.items()))) if tags else message.name
                run = instance.counters.get(counter)
                if run is None:
                    # Of a higher value, so this record begins the run.
                    run = instance.counters[counter] = Run(message.value + 1)
                    self._runs += 1
                if message.value < run.value:
                    kept += run.end(partition)
                    kept.append(kept_record(partition, row, clock))
                    run.begin(offset, message.value)
                else:
                    # run.extend() inlined: most records come here.
                    run.superseded += 1
                    run.waiting, run.clock, run.value = row, clock, message.value
            elif isinstance(message, DecodedSnapshot):
                kept += self._snapshot(instance, message, row, clock)
            else:
                kept += self._remove(instance, message)
                kept.append(kept_record(partition, row, clock))
        return kept + self.end() if self._runs >= MAX_RUNS else kept

    def end(self) -> list[Record]:
        """End all runs, and return the waiting records."""
        kept = [record for instance in self._instances.values() for record in self._end(instance)]
        self._instances.clear()
        self._runs = 0
        return kept

    def _remove(self, instance: InstanceRuns, message: Forget | Refusal) -> list[Record]:
        """End the runs of lives or metrics that a record removes, and return the waiting records."""
        if isinstance(message, Refusal):
            return []
        if message.metric is not None:  # any instance may have it
            return self.end()
        kept = self._end(instance)
        instance.counters, instance.snapshots = {}, {}
        return kept

    def _end(self, instance: InstanceRuns) -> list[Record]:
        runs = [*instance.counters.values(), *instance.snapshots.values()]
        return [record for run in runs for record in run.end(self._partition)]

    def _snapshot(self, instance: InstanceRuns, message: DecodedSnapshot, row: RawRecord, clock: int) -> list[Record]:
        """Add a snapshot, and return the records that are kept."""
        snapshot = message.snapshot
        part = (snapshot.app, snapshot.life, snapshot.part)
        run = instance.snapshots.get(part)
        if run is None:
            run = instance.snapshots[part] = SnapshotRun()
            self._runs += 1
        in_bounds = out_of_bounds(snapshot, row[1]) is None
        continuable = in_bounds and not snapshot.final and not message.rejected and not message.over_limit
        if continuable and run.continues(snapshot):
            run.extend(row, clock, snapshot.seq)
            run.metrics = snapshot.metrics
            return []
        kept = [*run.end(self._partition), kept_record(self._partition, row, clock)]
        if in_bounds and snapshot.seq > run.value:
            run.has_decreased |= run.decreases_in(snapshot)
            run.begin(row[0], snapshot.seq)
            run.complete = snapshot.complete
            run.metrics = snapshot.metrics if continuable and is_accepted_completely(snapshot) else None
        return kept
