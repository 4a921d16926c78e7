"""Compact a backlog: leave out records that later ones supersede, without changing what the table makes of the rest.

A run is a series of records of one counter of the short form, or of one part of a life, each of which replaces the one
before it. Its first and its last record are kept. The newest record waits: if the next one goes on with the run, it is
left out; else it is kept, and says how many it supersedes. The table accepts every record of a run whole if it accepts
the first one whole; a kept record says which one that was, and the table asks for the records that were left out if it
did not (`expand`). docs/table.md, "Compaction", argues rule by rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tallystream.record import Counter, Histogram, Metric, Position, ShortForm, identity
from tallystream_aggregator.table.arithmetic.metric_types import stored
from tallystream_aggregator.table.arithmetic.sketches import taken
from tallystream_aggregator.table.decode import (
    Forget,
    Good,
    Record,
    Superseded,
    Unreadable,
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
    """Records supersede others, and the table did not accept what came before these: read `instances` again."""

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
    """Return the records of a batch with every record of `instances` that compaction left out.

    `read` returns all records of a span, in offset order, as the topic has them, and raises where it can't.
    """
    keys = {instance.encode() for instance in instances}
    compacted: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        if record.key in keys:
            compacted.setdefault((record.topic, record.partition), []).append(record)
    whole = [record for record in records if record.key not in keys]
    for (topic, partition), mine in compacted.items():
        mine.sort(key=lambda record: record.offset)
        reread = read(Span(topic, partition, mine[0].offset, mine[-1].offset))
        whole += [record for record in _with_clock(reread, mine[0].clock_ms) if record.key in keys]
    return whole


def _with_clock(records: Iterable[Record], clock: int) -> Iterator[Record]:
    """Give records the partition's clock: those that moved it may have been left out."""
    for record in records:
        clock = max(clock, record.timestamp_ms)
        yield record._replace(clock_ms=clock)


RawRecord = tuple[int, int, bytes | None, bytes | None]
"""(offset, append time in epoch ms, key, value) of a record"""


class Place(NamedTuple):
    """The partition that records are of."""

    topic: str
    partition: int


class Run:
    """A counter of the short form: `value` is its newest one, `waiting` the record that carried it, if not yet kept.

    `clock` is the clock at that record; `superseded` how many records it supersedes, -1 where none waits; `first` and
    `after` are the offset and the value of the record that was kept last.
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

    def follow(self, row: RawRecord, clock: int, value: int) -> None:
        """Let a record supersede the one that waits."""
        self.superseded += 1
        self.waiting, self.clock, self.value = row, clock, value

    def end(self, place: Place) -> list[Record]:
        """Return the record that waits, if one does; the next one may go on after it."""
        if self.waiting is None:
            return []
        superseded = Superseded(self.superseded, self.after, self.first) if self.superseded else None
        kept = keep(place, self.waiting, self.clock, superseded)
        self.waiting, self.superseded = None, -1
        self.begin(kept.offset, self.value)
        return [kept]


class SnapshotRun(Run):
    """A part of a life: `value` is the highest seq, `metrics` those of its snapshot, None where no run has begun.

    `falls` tells that a snapshot had less of a metric than the one before it.
    """

    __slots__ = ("falls", "metrics")

    def __init__(self) -> None:
        super().__init__(0)
        self.metrics: Sequence[Metric] | None = None
        self.falls = False

    def goes_on(self, snapshot: Snapshot) -> bool:
        """Tell whether a snapshot goes on with the run, so that the one that waits changes nothing.

        It does if it has a higher seq and the same metrics, in the same order, none of them lower or refused. After a
        fall no run goes on: the table refuses the metric until it has risen above the highest count again.
        """
        metrics = self.metrics
        if self.falls or metrics is None or snapshot.seq <= self.value or len(snapshot.metrics) != len(metrics):
            return False
        for new, old in zip(snapshot.metrics, metrics, strict=True):
            kind = new.__class__
            if kind is not old.__class__ or new.name != old.name or new.tags != old.tags:
                return False
            if kind is Counter:
                if new.count < old.count:  # type: ignore[union-attr]
                    return False
            elif falls(new, old) or narrows(new, old) or not is_good(new):
                return False
        return True

    def has_more_than(self, snapshot: Snapshot) -> bool:
        """Tell whether a snapshot has less of a metric than the one before: the table refuses that metric (rule 4)."""
        last = {identity(old.name, old.type, old.tags): old for old in self.metrics or ()}
        found = ((new, last.get(identity(new.name, new.type, new.tags))) for new in snapshot.metrics)
        return any(old is not None and falls(new, old) for new, old in found)


def keep(place: Place, row: RawRecord, clock: int, superseded: Superseded | None = None) -> Record:
    """Return a record as compaction passes it on."""
    return Record(place.topic, place.partition, *row, clock, superseded)


def is_whole(snapshot: Snapshot) -> bool:
    """Tell whether the table refuses nothing of a snapshot for what it is by itself."""
    metrics = snapshot.metrics
    return len({identity(m.name, m.type, m.tags) for m in metrics}) == len(metrics) and all(map(is_good, metrics))


def falls(new: Metric, old: Metric) -> bool:
    """Tell whether a newer metric of the same identity has less of what only grows: a count, a position."""
    if isinstance(new, Position):
        return new.position < old.position or new.start > old.start  # type: ignore[union-attr]
    return hasattr(new, "count") and new.count < old.count  # type: ignore[union-attr]


def narrows(new: Metric, old: Metric) -> bool:
    """Tell whether a newer histogram or timer has a greater min or a smaller max: within a life both only widen."""
    if not isinstance(new, Histogram) or not isinstance(old, Histogram):
        return False
    return (old.min is not None and (new.min is None or new.min > old.min)) or (
        old.max is not None and (new.max is None or new.max < old.max)
    )


def is_good(metric: Metric) -> bool:
    """Tell whether the table takes a metric by itself: its numbers can be summed, its sketch can be read."""
    try:
        stored(metric)
        taken(metric)
    except (ValueError, OverflowError):
        return False
    return True


MAX_RUNS = 500_000
"""Runs that are followed at a time, which bounds memory: beyond it all runs end, and the next records begin others."""

CounterKey = str | tuple[str, tuple[tuple[str, str], ...]]
"""The name of a counter of the short form, with its sorted tags where it has any."""


class Instance:
    """The runs of one key. `readable` tells whether the key is an instance ID."""

    __slots__ = ("counters", "readable", "shard", "snapshots")

    def __init__(self, key: bytes | None, shards: int) -> None:
        self.shard = shard_of(key, shards)
        self.readable = not isinstance(read_key(key), Unreadable)
        self.counters: dict[CounterKey, Run] = {}
        self.snapshots: dict[tuple[str, str, int], SnapshotRun] = {}


class Compactor:
    """Compacts the records of one partition for a table in `shards`. Single use."""

    def __init__(self, topic: str, partition: int, settings: TableSettings, shards: int = 1) -> None:
        self._place = Place(topic, partition)
        self._settings = settings
        self._clocks = [0] * shards  # by shard, the highest append time so far
        self._instances: dict[bytes | None, Instance] = {}
        self._runs = 0

    def add(self, rows: Iterable[RawRecord]) -> list[Record]:
        """Take records in offset order, and return those that are known to be kept by now, in any order."""
        kept: list[Record] = []
        instances, clocks, place = self._instances, self._clocks, self._place
        max_bytes, max_metrics = self._settings.max_record_bytes, self._settings.max_metrics
        for row in rows:
            offset, at_ms, key, value = row
            instance = instances.get(key)
            if instance is None:
                instance = instances[key] = Instance(key, len(clocks))
                self._runs += 1
            clock = clocks[instance.shard]
            if at_ms > clock:
                clock = clocks[instance.shard] = at_ms
            if value is None:
                kept += self._take_out(instance, Forget())
                kept.append(keep(place, row, clock))
                continue
            if len(value) > max_bytes or not instance.readable:
                kept.append(keep(place, row, clock))
                continue
            message = read_short_form(value) or read_value(value, max_metrics)
            if isinstance(message, ShortForm):
                tags = message.tags
                counter = (message.name, tuple(sorted(tags.items()))) if tags else message.name
                run = instance.counters.get(counter)
                if run is None:
                    run = instance.counters[counter] = Run(message.value + 1)  # so this value begins it
                    self._runs += 1
                if message.value < run.value:
                    kept += run.end(place)
                    kept.append(keep(place, row, clock))
                    run.begin(offset, message.value)
                else:
                    # run.follow(), without the call: most records come here.
                    run.superseded += 1
                    run.waiting, run.clock, run.value = row, clock, message.value
            elif isinstance(message, Good):
                kept += self._snapshot(instance, message, row, clock)
            else:
                kept += self._take_out(instance, message)
                kept.append(keep(place, row, clock))
        return kept + self.end() if self._runs >= MAX_RUNS else kept

    def end(self) -> list[Record]:
        """End all runs, and return the records that wait."""
        kept = [record for instance in self._instances.values() for record in self._end(instance)]
        self._instances.clear()
        self._runs = 0
        return kept

    def _take_out(self, instance: Instance, message: Forget | Unreadable) -> list[Record]:
        """End the runs of what a record takes out of the table, and return the records that wait."""
        if isinstance(message, Unreadable):
            return []
        if message.metric is not None:  # any instance may have it
            return self.end()
        kept = self._end(instance)
        instance.counters, instance.snapshots = {}, {}
        return kept

    def _end(self, instance: Instance) -> list[Record]:
        runs = [*instance.counters.values(), *instance.snapshots.values()]
        return [record for run in runs for record in run.end(self._place)]

    def _snapshot(self, instance: Instance, message: Good, row: RawRecord, clock: int) -> list[Record]:
        """Take a snapshot, and return what is kept."""
        snapshot = message.snapshot
        part = (snapshot.app, snapshot.life, snapshot.part)
        run = instance.snapshots.get(part)
        if run is None:
            run = instance.snapshots[part] = SnapshotRun()
            self._runs += 1
        timely = out_of_bounds(snapshot, row[1]) is None
        whole = timely and not snapshot.final and not message.rejected and not message.beyond
        if whole and run.goes_on(snapshot):
            run.follow(row, clock, snapshot.seq)
            run.metrics = snapshot.metrics
            return []
        kept = [*run.end(self._place), keep(self._place, row, clock)]
        if timely and snapshot.seq > run.value:
            run.falls |= run.has_more_than(snapshot)
            run.begin(row[0], snapshot.seq)
            run.metrics = snapshot.metrics if whole and is_whole(snapshot) else None
        return kept
