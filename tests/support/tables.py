"""A table that applies the records of a topic in steps, as the loop does, and begins again from its state or its rows.

The loop itself, with transactions and several writers, is in support.simulation.
"""

from __future__ import annotations

import dataclasses
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import cycle
from typing import Any

from support.kept import require_as_new
from support.replayed import TopicRecord, fields_of
from support.schedules import forgets_metrics
from support.simulation.checkpoints import Batch
from support.steps import apply, records_of
from tallystream_aggregator.table import Changes, State, Table, TableSettings, pack, storage, unpack
from tallystream_aggregator.table.combiners import CombinerGroup, decode, encode
from tallystream_aggregator.table.restore import LatestRows, restore
from tallystream_aggregator.table.storage import StoredTable
from tallystream_aggregator.table.sum_tags import SumTags

Ends = dict[int, int]
"""The end of a step by partition."""

Sums = dict[Any, dict[str, Any]]
EventId = tuple[str, str, str, str, int, str]
"""(kind, app, instance, life, ts_ms, detail)"""


def table_settings(**chosen: int) -> TableSettings:
    """Return the settings of `chosen` that the table has."""
    known = {one.name for one in dataclasses.fields(TableSettings)}
    return TableSettings(**{name: value for name, value in chosen.items() if name in known})  # type: ignore[arg-type]


class Tables:
    """The shards of a table over the records of a topic, with their combiner and their rows on `metrics-table`.

    `sums` has the newest sums by (app, name, type, tags), as a reader of `metrics-agg` has them. `dead` counts the dead
    letters of each (partition, offset), `events` the events. `published` has the metric and the value of every sum that
    was published. `at` is the end of the last step, by partition.

    With `chance`, a step publishes rows in one of two cases, and then the state is stored in one of two, as at the end
    of an epoch. Without it, both are done after each step.
    """

    def __init__(
        self,
        records: Iterable[TopicRecord],
        settings: TableSettings,
        shards: int = 1,
        chance: random.Random | None = None,
        *,
        sum_tags: SumTags | None = None,
    ) -> None:
        self.settings, self._chance, self._tags = settings, chance, sum_tags or SumTags()
        self.sums: Sums = {}
        self.dead: Counter[tuple[int, int]] = Counter()
        self.events: Counter[EventId] = Counter()
        self.published: list[tuple[Any, bytes]] = []
        self.at: dict[int, int] = {}
        self._steps: list[Ends] = []
        self._partitions: dict[int, list[TopicRecord]] = {}
        self.extend(records)
        self._combiner = CombinerGroup()
        self.stores = [Batch(0) for _ in range(shards)]
        self._rows = [LatestRows() for _ in range(shards)]
        self._shards = [self._new(shard) for shard in range(shards)]

    @property
    def tables(self) -> list[Table]:
        return [one.table for one in self._shards]

    @property
    def states(self) -> list[State]:
        return [table.state for table in self.tables]

    def extend(self, records: Iterable[TopicRecord]) -> None:
        for record in records:
            self._partitions.setdefault(record.partition, []).append(record)

    def step(self, ends: Mapping[int, int]) -> list[TopicRecord]:
        """Take a step up to these offsets, and return the records that it read, as they are applied."""
        records = self._between(self.at, ends)
        self.at |= {partition: max(end, self.at.get(partition, 0)) for partition, end in ends.items()}
        self._steps.append(dict(self.at))
        for table in self.tables:
            apply(table, records_of(records))
            self._publish(table.outputs())
            require_as_new(table)
        for shard, stored in enumerate(self._shards):
            if self._chance is None or self._chance.random() < 0.5:
                for row in stored.table.rows():
                    self._rows[shard].add(row.key, row.value(), partition=shard)
                if self._chance is None or self._chance.random() < 0.5:
                    stored.save(self.stores[shard])
        return records

    def begin_again(self, *, from_rows: bool = False) -> None:
        """Lose the tables. Load their state, or else their rows, and read again up to the last step, in silence.

        If a record forgets a metric, it is in the same steps: forgotten sums may depend on the order (docs/table.md).
        """
        counted = [state.records for state in self.states]
        self._shards = [self._loaded(shard, from_rows=from_rows) for shard in range(len(self._shards))]
        is_ordered = any(map(forgets_metrics, self._between({}, self.at)))
        for table in self.tables:
            offsets = table.state.offsets
            begin = {partition: offsets.get(f"metrics:{partition}", -1) + 1 for partition in self.at}
            for ends in self._steps if is_ordered else [self.at]:
                if records := self._between(begin, ends):
                    apply(table, records_of(records))
                    begin |= ends
            table.outputs()
        assert [state.records for state in self.states] == counted

    def all_sums(self) -> Sums:
        """Return the sums that the tables have now, whether they have changed or not."""
        return sums_of([unpack(pack(state)) for state in self.states], self.settings)

    def _new(self, shard: int) -> StoredTable:
        state = State(shard=shard, shards=len(self.stores), sum_tags=self._tags)
        return storage.StoredTable(Table(state, self.settings))

    def _loaded(self, shard: int, *, from_rows: bool) -> StoredTable:
        stored = None if from_rows else storage.load(self.stores[shard], self.settings)
        if stored is not None:
            return stored
        if not self._rows[shard].rows:
            return self._new(shard)
        state = restore(deepcopy(self._rows[shard])).states[shard]
        return storage.StoredTable(Table(state, self.settings))

    def _between(self, begin: Mapping[int, int], ends: Mapping[int, int]) -> list[TopicRecord]:
        return [
            record
            for partition, ours in sorted(self._partitions.items())
            for record in ours[begin.get(partition, 0) : ends.get(partition, 0)]
        ]

    def _publish(self, changes: Changes) -> None:
        self.dead.update((letter.record.partition, letter.record.offset) for letter in changes.dead)
        self.events.update((e.kind, e.app, e.instance, e.life, e.ts, e.detail) for e in changes.events)
        self._combiner.update(decode(encode(one)) for one in changes.shard_sums)
        for total in [*changes.totals, *self._combiner.changes()]:
            value = total.value()
            self.sums[total.metric] = fields_of(value)
            self.published.append((total.metric, value))
        for of_shards in self._combiner._shard_sums.values():
            assert not all(one.partial.is_empty for one in of_shards.values()), "what no shard has is dropped"


def sums_of(states: Iterable[State], settings: TableSettings | None = None) -> Sums:
    """Return the sums of a table with the states of these shards, which are used up."""
    combiner, totals = CombinerGroup(), []
    for state in states:
        table = Table(state, settings)
        table.publish_all()
        changes = table.outputs()
        totals += changes.totals
        combiner.update(changes.shard_sums)
    return {total.metric: fields_of(total.value()) for total in [*totals, *combiner.changes()]}


def divide(records: Sequence[TopicRecord], sizes: list[int], chance: random.Random | None = None) -> Iterator[Ends]:
    """Yield steps of these sizes, repeatedly, in the order of appending.

    With `chance`, half of the steps read only one partition; later ones then have older records of the others.
    """
    left, ends = list(records), dict.fromkeys(sorted({record.partition for record in records}), 0)
    for size in cycle(sizes):
        if not left:
            return
        mine = left
        if chance is not None and chance.random() < 0.5:
            mine = [record for record in left if record.partition == left[0].partition]
        for record in mine[:size]:
            ends[record.partition] = record.offset + 1
        left = [record for record in left if record.offset >= ends[record.partition]]
        yield dict(ends)
