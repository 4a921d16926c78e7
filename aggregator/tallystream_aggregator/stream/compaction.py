"""Apply the records of a step to the table, and leave out those that later ones of the step supersede.

A run is a series of records of one counter of the short form, each of which replaces the one before it. The first
record of a run is applied at once. If the table accepts it, it accepts each of the next ones in the same way. So only
the newest of them waits. It is applied before the next record of its instance that is applied at once, and at the end
of the step: the records of an instance stay in their order. No result depends on what is left out: docs/table.md,
"Compaction", has the proof for each rule. All snapshots are applied: to compare two of them takes as long.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tallystream.record import ShortForm
from tallystream_aggregator.table.records.decode import (
    CLOCK_KEY,
    Forget,
    Record,
    read_short_form,
    read_value,
    shard_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.stream.broker import Chunk, Place, RawRecord
    from tallystream_aggregator.table.records.decode import Message
    from tallystream_aggregator.table.table import Table

MAX_RUNS = 500_000
"""The most runs at a time, which bounds memory. At this number all runs end, and the next records begin new ones."""

FEW_RECORDS = 2_000
"""Up to so many records of a partition are applied one by one, without a search for runs."""

CounterKey = str | tuple[str, tuple[tuple[str, str], ...]]
"""The name of a counter of the short form, and its sorted tags if it has any."""


class Run:
    """The run of a counter, whose newest value is `value`.

    `limit` is the highest value that continues the run. `waiting` is the newest record if it is not applied yet,
    `clock` its partition's time at that record, and `records` how many records it stands for: those that it supersedes,
    and itself.
    """

    __slots__ = ("clock", "limit", "records", "value", "waiting")

    def __init__(self) -> None:
        self.waiting: RawRecord | None = None
        self.value = self.clock = self.records = 0
        self.limit = -1


class InstanceRuns:
    """The runs of one key. `applies` tells whether this shard has it.

    `waiting` are the runs that have a waiting record.
    """

    __slots__ = ("applies", "counters", "waiting")

    def __init__(self, key: bytes | None, shard: int, shards: int) -> None:
        self.applies = key == CLOCK_KEY or shard_of(key, shards) == shard
        self.counters: dict[CounterKey, Run] = {}
        self.waiting: list[Run] = []


class StepRecords:
    """Applies the chunks of one step to a table. Single use: `end` applies what waits."""

    def __init__(self, table: Table) -> None:
        self._table, self._settings = table, table.settings
        self._shard, self._shards = table.state.shard, table.state.shards
        self._runs: dict[Place, dict[bytes | None, InstanceRuns]] = {}
        self._waiting: dict[Place, list[InstanceRuns]] = defaultdict(list)  # of them, those that may have waiting runs
        self._number = 0

    def add(self, chunk: Chunk) -> None:
        """Apply the records of a chunk, or let them wait."""
        place, name = chunk.place, str(chunk.place)
        clock = self._table.state.clocks.get(name, 0)
        if place.topic in self._settings.otlp_topics:
            clock = self._apply_all(place, chunk.rows, clock, every=True)
        elif len(chunk.rows) <= FEW_RECORDS and place not in self._runs:
            clock = self._apply_all(place, chunk.rows, clock, every=self._shards == 1)
        else:
            clock = self._compact(place, chunk.rows, clock)
        self._table.advance(name, chunk.end - 1, clock)

    def end(self) -> None:
        """Apply the records that wait."""
        for place in self._waiting:
            self._apply_all_waiting(place)
        self._runs.clear()
        self._number = 0

    def _apply_all(self, place: Place, rows: Iterable[RawRecord], clock: int, *, every: bool) -> int:
        """Apply records one by one, and return the partition's time after them."""
        apply, shard, shards = self._table.apply_record, self._shard, self._shards
        for row in rows:
            clock = max(clock, row[1])
            if every or row[2] == CLOCK_KEY or shard_of(row[2], shards) == shard:
                apply(Record(place.topic, place.partition, *row, clock))
        return clock

    def _compact(self, place: Place, rows: Iterable[RawRecord], clock: int) -> int:
        """Apply records or let them wait, and return the partition's time after them."""
        instances, waiting = self._runs.setdefault(place, {}), self._waiting[place]
        max_bytes = self._settings.max_record_bytes
        for row in rows:
            _, at_ms, key, value = row
            clock = max(clock, at_ms)
            instance = instances.get(key) or self._new_instance(instances, key)
            if not instance.applies:
                continue
            if value is None or len(value) > max_bytes or key == CLOCK_KEY:
                self._other(place, instance, None, row, clock)
                continue
            message = read_short_form(value) or read_value(value, self._settings.max_metrics)
            if isinstance(message, ShortForm):
                tags = message.tags
                counter = (message.name, tuple(sorted(tags.items()))) if tags else message.name
                run = instance.counters.get(counter)
                if run is None:
                    run = instance.counters[counter] = Run()
                    self._number += 1
                new = message.value
                if run.value <= new <= run.limit:
                    # Most records come here.
                    if not run.records:
                        waiting.append(instance)
                        instance.waiting.append(run)
                    run.records += 1
                    run.waiting, run.clock, run.value = row, clock, new
                else:
                    run.limit, run.value = self._apply(place, instance, row, clock, message), new
            else:
                self._other(place, instance, message, row, clock)
            if self._number >= MAX_RUNS:
                self.end()
                instances = self._runs.setdefault(place, {})
        return clock

    def _new_instance(self, instances: dict[bytes | None, InstanceRuns], key: bytes | None) -> InstanceRuns:
        self._number += 1
        instance = instances[key] = InstanceRuns(key, self._shard, self._shards)
        return instance

    def _other(self, place: Place, instance: InstanceRuns, message: Message | None, row: RawRecord, clock: int) -> None:
        """Apply a record that is not of the short form, or is not decoded. It may end runs."""
        if row[2] == CLOCK_KEY:  # the lives that it forgets need their newest records before it
            self._apply_all_waiting(place)
        elif isinstance(message, Forget) and message.metric is not None:  # any instance may have it
            self._apply_all_waiting(place)
            self._runs[place].clear()
        elif row[3] is None or isinstance(message, Forget):
            self._apply_waiting(place, instance)
            instance.counters = {}
        self._apply(place, instance, row, clock, message)

    def _apply(self, place: Place, instance: InstanceRuns, row: RawRecord, clock: int, message: Message | None) -> int:
        """Apply a record at once, after those of its instance that wait, and return how far its run may go."""
        if instance.waiting:
            self._apply_waiting(place, instance)
        return self._table.apply_record(Record(place.topic, place.partition, *row, clock), message=message)

    def _apply_all_waiting(self, place: Place) -> None:
        for instance in self._waiting[place]:
            self._apply_waiting(place, instance)
        self._waiting[place].clear()

    def _apply_waiting(self, place: Place, instance: InstanceRuns) -> None:
        """Apply the waiting records of an instance in their order. Further records may continue their runs."""
        waiting = [(run.waiting, run) for run in instance.waiting if run.waiting is not None]
        for row, run in sorted(waiting, key=lambda item: item[0][0]):
            record = Record(place.topic, place.partition, *row, run.clock)
            run.limit = self._table.apply_record(record, run.records)
            run.waiting, run.records = None, 0
        instance.waiting.clear()
