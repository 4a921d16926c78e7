"""Leave records out of a batch without changing what the table makes of it; pure, before the table, in any process.

Of a run of records (tallystream.aggregator.table.series) only the first and the last matter, if the table takes the
first one whole: it replaces what was there, and each of the others replaces it in turn. What the table alone knows is
asked there: a record that stands for others says which one was kept before them, and the table refuses the batch if it
is not that one that it has (`Unfoldable`); then the records of that instance are taken one by one.

docs/table.md, "Compaction", has the argument rule by rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.aggregator.table.inputs import Good, Unreadable, read_key, read_value
from tallystream.aggregator.table.series import Place, Row, Run, SnapshotRun, is_whole, keep, since_ms
from tallystream.aggregator.table.shards import shard_of
from tallystream.reporter.record import identity

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream.aggregator.table.inputs import Record
    from tallystream.aggregator.table.settings import TableSettings
    from tallystream.reporter.record import Identity

MAX_RUNS = 500_000
"""Runs that are followed at a time: what bounds memory. Beyond, all end, and begin anew."""


class Instance:
    """The runs of one key. `readable` tells whether the key is an instance ID."""

    __slots__ = ("counters", "readable", "shard", "snapshots")

    def __init__(self, shard: int, *, readable: bool) -> None:
        self.shard = shard
        self.readable = readable
        self.forget()

    def forget(self) -> None:
        """Begin anew."""
        self.counters: dict[Identity, Run] = {}
        self.snapshots: dict[tuple[str, str, int], SnapshotRun | None] = {}


class Compactor:
    """Compacts the records of one partition, which come in offset order, for a table in `shards`; used once.

    `clocks` is, by shard, the highest append time so far, in epoch ms.
    """

    def __init__(self, topic: str, partition: int, settings: TableSettings, shards: int = 1) -> None:
        self._place = Place(topic, partition)
        self.clocks = [0] * shards
        self._settings = settings
        # A quarter of the time after which lives retire: whatever is dropped within it is never late, unless the
        # table's clock is ahead of the records by as much again, which it looks at.
        self._margin_ms = settings.retire_after_ms // 4
        self._runs = 0
        self._instances: dict[bytes | None, Instance] = {}

    def add(self, rows: Iterable[Row]) -> list[Record]:
        """Take records, and return those of which it is known by now that they are kept, in no order that matters."""
        kept: list[Record] = []
        for row in rows:
            instance = self.instance(row[2])
            clock = self.clocks[instance.shard] = max(self.clocks[instance.shard], row[1])
            kept += self.take(instance, row, clock)
        return kept + self.bounded()

    def take(self, instance: Instance, row: Row, clock: int) -> list[Record]:
        """Take the next record of an instance, at its shard's clock, and return what is kept."""
        value = row[3]
        if value is None:  # a tombstone; what can't be read, or is too large, touches nothing
            kept = self._end(instance)
            instance.forget()
            return [*kept, keep(self._place, row, clock)]
        if len(value) > self._settings.max_record_bytes or not instance.readable:
            return [keep(self._place, row, clock)]
        message = read_value(value, self._settings.max_metrics)
        if isinstance(message, Unreadable):
            return [keep(self._place, row, clock)]
        if isinstance(message, Good):
            return self._snapshot(instance, message, row, clock)
        run = self.counter(instance, identity(message.name, message.type, message.tags))
        if message.value < run.value:
            return self.begin(run, row, clock, message.value)
        run.follow(row, clock, message.value)
        return []

    def begin(self, run: Run, row: Row, clock: int, value: int) -> list[Record]:
        """Begin a run of a counter with a record, which is kept: the first one, or one that is lower."""
        kept = [*run.end(self._place), keep(self._place, row, clock)]
        run.value, run.after, run.first = value, value, row[0]
        return kept

    def bounded(self) -> list[Record]:
        """Return what still waits if there is too much to follow, which ends here; else nothing."""
        return self.end() if self._runs >= MAX_RUNS else []

    def end(self) -> list[Record]:
        """Return what still waits: the records have ended, or are too many to follow."""
        kept = [record for instance in self._instances.values() for record in self._end(instance)]
        self._instances, self._runs = {}, 0
        return kept

    def instance(self, key: bytes | None) -> Instance:
        """Return the runs of a key."""
        instance = self._instances.get(key)
        if instance is None:
            shard, readable = shard_of(key, len(self.clocks)), not isinstance(read_key(key), Unreadable)
            instance = self._instances[key] = Instance(shard, readable=readable)
            self._runs += 1
        return instance

    def counter(self, instance: Instance, metric: Identity) -> Run:
        """Return the run of a counter of the short form."""
        run = instance.counters.get(metric)
        if run is None:
            run = instance.counters[metric] = Run()
            self._runs += 1
        return run

    def _end(self, instance: Instance) -> list[Record]:
        runs = [*instance.counters.values(), *(run for run in instance.snapshots.values() if run is not None)]
        return [record for run in runs for record in run.end(self._place)]

    def _snapshot(self, instance: Instance, message: Good, row: Row, clock: int) -> list[Record]:
        snapshot = message.snapshot
        of = (snapshot.app, snapshot.life, snapshot.part)
        run = instance.snapshots.get(of)
        if run is None and of in instance.snapshots:
            return [keep(self._place, row, clock)]
        if run is not None and snapshot.seq <= run.value:
            return [*run.end(self._place), keep(self._place, row, clock)]
        whole = not message.rejected and not message.beyond and not snapshot.final
        whole = whole and clock - since_ms(snapshot) < self._margin_ms
        if run is not None and whole and run.goes_on(snapshot, clock, self._margin_ms):
            run.wait(row, clock, snapshot)
            return []
        kept = [] if run is None else run.end(self._place)
        kept.append(keep(self._place, row, clock))
        if run is not None and run.has_more_than(snapshot):
            # What it refuses it will go on refusing for a while: no run could begin with a record that is taken whole.
            instance.snapshots[of] = None
        elif whole and is_whole(snapshot):
            instance.snapshots[of] = SnapshotRun(snapshot, row, clock)
            self._runs += run is None
        else:
            instance.snapshots.pop(of, None)
        return kept
