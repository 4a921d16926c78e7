"""Compact a backlog: leave out records that later ones supersede, without changing what the table makes of the rest.

A run is a series of records of one counter of the short form, or of one part of a life, each of which replaces the one
before it. Its first and its last record are kept. The table accepts every record of a run whole if it accepts the first
one whole; a kept record says which one that was, and the table asks for the records that were left out if it did not
(tallystream.aggregator.table.expand). docs/table.md, "Compaction", argues rule by rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.aggregator.table.inputs import Forget, Good, Unreadable, read_key, read_short_form, read_value
from tallystream.aggregator.table.limits import untimely
from tallystream.aggregator.table.runs import Place, Run, SnapshotRun, is_whole, keep
from tallystream.aggregator.table.shards import shard_of
from tallystream.reporter.record import ShortForm

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream.aggregator.table.inputs import Record
    from tallystream.aggregator.table.runs import RawRecord
    from tallystream.aggregator.table.settings import TableSettings

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
        timely = untimely(snapshot, row[1]) is None
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
