"""A table that runs in batches as in Spark, with crashes, takeovers, rebuilds and splits, and its published records.

Only `Tables` runs batches and stores states.
"""

from __future__ import annotations

import copy
import dataclasses
import random
from collections import Counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from support.compaction import compact, span_reader, table_records
from support.memory_store import MemoryStore
from tallystream_aggregator.table import State, TableSettings, combiners, storage
from tallystream_aggregator.table.arithmetic.sketches import SHARES
from tallystream_aggregator.table.combiners import CombinerGroup, combine_shards
from tallystream_aggregator.table.outputs import Total
from tallystream_aggregator.table.restore.latest_rows import LatestRows, RebuildError
from tallystream_aggregator.table.restore.republish import Republish
from tallystream_aggregator.table.restore.restore import included_by_all, restore
from tallystream_aggregator.table.rows import ForgottenRow
from tallystream_aggregator.table.shards import ShardSum, group_of, shards_of
from tallystream_aggregator.table.shards import decode as decode_shard_sum
from tallystream_aggregator.table.shards import encode as encode_shard_sum
from tallystream_aggregator.table.sum_tags import SumTags
from tallystream_aggregator.table.table import run_batch, run_expanded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from support.batches import Batch
    from support.schedules import TopicRecord
    from tallystream_aggregator.table import Changes, Record
    from tallystream_aggregator.table.storage import StoredTable
    from tallystream_aggregator.versions import Version

Sums = dict[Any, dict[str, Any]]
EventId = tuple[str, str, str, str, int, str]
"""(kind, app, instance, life, ts_ms, detail)"""


def table_settings(**chosen: int) -> TableSettings:
    """Return the settings of `chosen` that the table has."""
    known = {one.name for one in dataclasses.fields(TableSettings)}
    return TableSettings(**{name: value for name, value in chosen.items() if name in known})  # type: ignore[arg-type]


class Tables:
    """The shards of a table over the records of a topic, with its combiners and `metrics-table`.

    `sums` has the newest sums by (app, name, type, tags), as a reader of `metrics-agg` has them. A rebuilt table has
    none until it has `published` all of them again. `dead` counts the dead letters of each (partition, offset). `rows`
    has the key and value of every published sum, and `changes` the changes of the last batch by shard.

    A batch runs the shards that have records. It also runs the others if it reads all partitions to their end, or by
    `chance`. With `strict` it runs only shards with records, as Spark does.

    `sum_tags` are the tags of the sums. `summed` are the metrics that ever had a sum.

    With `segment`, records are compacted, this many of a partition at a time. `compaction` counts the records `read`
    and `kept`, and the batches that were `expanded`.
    """

    def __init__(
        self,
        records: Iterable[TopicRecord],
        settings: TableSettings,
        shards: int = 1,
        chance: random.Random | None = None,
        *,
        strict: bool = False,
        segment: int = 0,
        sum_tags: SumTags | None = None,
    ) -> None:
        self.settings = settings
        self._strict = strict
        self._segment = segment
        self.compaction: Counter[str] = Counter()
        self.rows: list[tuple[bytes, bytes]] = []
        self._chance = chance or random.Random(0)
        self.log: list[tuple[bytes, bytes | None, Version, int]] = []
        self.epoch = 1
        self.sums: Sums = {}
        self.summed: set[Any] = set()
        self.dead: Counter[tuple[int, int]] = Counter()
        self.events: Counter[EventId] = Counter()
        self.changes: dict[int, Changes] = {}
        self.splits = 0
        self._partitions: dict[int, list[TopicRecord]] = {}
        self.extend(records)
        self._at: dict[int, int] = {}
        self._start: dict[int, int] = {}
        tags = sum_tags or SumTags()
        states = [State(shard=shard, shards=shards, sum_tags=tags) for shard in range(shards)]
        self._begin(states, [[] for _ in range(shards)])

    def _begin(self, states: list[State], groups: list[list[bytes]]) -> None:
        self._initial_states, self._initial_groups = states, groups
        self.stores = [MemoryStore() for _ in states]
        self._combiners = [MemoryStore() for _ in groups]
        self.batches = 0
        self.published = False

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self.stores)

    @property
    def states(self) -> list[State]:
        """The state of each shard at the start of the next batch."""
        return [self._load(shard).table.state for shard in range(self.shards)]

    @property
    def has_read(self) -> bool:
        """Whether a batch has read something."""
        return any(self._at.values())

    def batch(
        self,
        batch: Batch,
        written: random.Random | None = None,
        republish: Mapping[int, Republish] = MappingProxyType({}),
    ) -> list[TopicRecord]:
        """Run a batch and return the records that it read, in the order in which the table applies them.

        With `written`, it crashes after some of its rows were written. `republish` has what each shard must repeat.
        """
        records = [
            record
            for partition, ours in sorted(self._partitions.items())
            for record in ours[self._at.get(partition, 0) : batch.ends[partition]]
        ]
        if self._strict and not records:
            return []
        by_shard: dict[int, list[Record]] = {}
        for record in self._compacted(table_records(records)):
            for shard in shards_of(record, self.shards, self.settings.otlp_topics):
                by_shard.setdefault(shard, []).append(record)
        ran: dict[int, tuple[StoredTable, Changes]] = {}
        for shard in range(self.shards):
            if (
                shard in by_shard
                or shard in republish
                or (batch.all_read and not self._strict)
                or (self.shards > 1 and not self._strict and self._chance.random() < 0.1)
            ):
                ran[shard] = self._run(shard, by_shard.get(shard, []), table_records(records), republish.get(shard))
        writer = self.epoch, self.batches
        for shard, (_, changes) in ran.items():
            rows = [(r.key, r.value(epoch=writer[0], batch=writer[1]), writer, shard) for r in changes.rows]
            # The shard's own record is the last one, so it exists only if all others do.
            # If a batch that forgot lives was written in part, and the checkpoint is lost, lives may be lost or
            # doubled until the sink writes in transactions: docs/table.md, "Not guaranteed".
            forgets = any(isinstance(row.row, ForgottenRow) for row in changes.rows)
            is_partial = written is not None and not forgets and written.random() < 0.7
            self.log += [row for row in rows[:-1] if self._chance.random() < 0.5] if is_partial else rows
        if written is not None:
            return records
        self._finish(ran)
        self.batches += 1
        for partition, last in batch.ends.items():
            self._at[partition] = max(last, self._at.get(partition, 0))
        return records

    def _compacted(self, records: Sequence[Record]) -> Sequence[Record]:
        if not self._segment:
            return records
        kept = compact(records, self.settings, shards=self.shards, segment=self._segment)
        self.compaction.update(read=len(records), kept=len(kept))
        return kept

    def _run(
        self, shard: int, records: list[Record], everything: list[Record], republish: Republish | None
    ) -> tuple[StoredTable, Changes]:
        topics = self.settings.otlp_topics
        mine = [record for record in everything if shard in shards_of(record, self.shards, topics)]

        found = None

        def run(records: Sequence[Record]) -> Changes:
            nonlocal found
            self.compaction["expanded"] += found is not None
            found = self._load(shard)
            return run_batch(found.table, records, republish=republish)

        changes = run_expanded(records, run, span_reader(mine))
        assert found is not None
        return found, changes

    def _finish(self, ran: dict[int, tuple[StoredTable, Changes]]) -> None:
        shard_sums: list[ShardSum] = []
        for shard, (found, changes) in ran.items():
            found.save(self.stores[shard])
            self.dead.update((letter.record.partition, letter.record.offset) for letter in changes.dead)
            self.events.update((*event[:5], event.detail) for event in changes.events)
            self._publish(changes.totals)
            shard_sums += [decode_shard_sum(encode_shard_sum(one)) for one in changes.shard_sums]
        self.changes = {shard: changes for shard, (_, changes) in ran.items()}
        if self.shards > 1:
            self._combine(shard_sums)
        self.published = self.published or self.shards > 1 or bool(ran)

    def _combine(self, shard_sums: list[ShardSum]) -> None:
        for group, store in enumerate(self._combiners):
            mine = [one for one in shard_sums if group_of(one.metric, self.shards) == group]
            found = combiners.load(store, lambda group=group: self._new_group(group))  # type: ignore[misc]
            if mine or not found.group.published:
                found.group.update(mine)
                totals = found.group.changes()
                found.save(store)
                self._publish(totals)

    def _new_group(self, group: int) -> CombinerGroup:
        entries = self._initial_groups[group]
        return combiners.unpack(entries) if entries else CombinerGroup()

    def _publish(self, totals: Iterable[Total]) -> None:
        for total in totals:
            # Quantiles are estimates: test_quantiles.py and verify check them.
            exact = {name: value for name, value in total.totals.items() if name not in SHARES}
            number = {"lives": total.lives, "instances": total.instances}
            gauge = {"mean": total.mean} if "number" in total.totals else {}
            overflow = {"overflow": True} if total.overflow else {}
            self.sums[total.metric] = exact | gauge | number | overflow
            self.summed.add(total.metric)
            self.rows.append((total.key(), total.value()))

    def _load(self, shard: int) -> StoredTable:
        return storage.load(self.stores[shard], self.settings, lambda: copy.deepcopy(self._initial_states[shard]))

    def extend(self, records: Iterable[TopicRecord]) -> None:
        """Append records to the topic."""
        for record in records:
            self._partitions.setdefault(record.partition, []).append(record)

    def take_over(self) -> None:
        """Continue on the same checkpoint with the next writer."""
        self.epoch += 1

    def overwrite(self, chance: random.Random) -> dict[int, Republish]:
        """Let an earlier writer write some of its rows and sums again. The topics may then be compacted.

        Return the keys that each shard must repair.
        """
        older = [row for row in self.log if row[2][0] < self.epoch]
        stale = chance.sample(older, chance.randint(0, len(older)))
        self.log += stale
        if chance.random() < 0.5:
            self.compact()
        sums = chance.sample(sorted(self.sums), chance.randint(0, len(self.sums)))
        for metric in sums:
            self.sums[metric] = {}
        keys = [Total(metric, {}, 0, 0, 0, {}).key() for metric in sums]
        return {
            shard: Republish([key for key, _, _, partition in stale if partition == shard], keys)
            for shard in range(self.shards)
        }

    def compact(self) -> None:
        """Compact `metrics-table` as a broker does: keep the last record of each key, except deletions."""
        last = {(partition, key): number for number, (key, _, _, partition) in enumerate(self.log)}
        self.log = [self.log[number] for number in sorted(last.values()) if self.log[number][1] is not None]

    def rebuild(self, more: int = 0, *, behind: bool = False, sum_tags: SumTags | None = None) -> None:
        """Lose the checkpoint and restore the states from `metrics-table`, unless nothing was read.

        The table gets `more` additional shards, if that is allowed. With `behind`, the ledger has no batch since the
        checkpoint began. The sums have `sum_tags` from now on; None keeps the tags that they had.
        """
        if not self.has_read:
            return
        latest = LatestRows()
        for record in self._chance.sample(self.log, len(self.log)):  # partitions are read in any order
            latest.add(*record)
        known = self._start if behind else self._at
        ends = {f"metrics:{partition}": end for partition, end in known.items()}
        try:
            found = restore(latest, self.summed, shards=self.shards + more, finished=ends, sum_tags=sum_tags)
            self.splits += more > 0
        except RebuildError:
            found = restore(latest, self.summed, finished=ends, sum_tags=sum_tags)
        self.epoch = max(self.epoch, found.epoch) + 1
        self.sums = {}
        self._begin(found.states, [list(combiners.pack(group)) for group in combine_shards(found.states)])
        included = included_by_all(found.states)
        self._at = {partition: included.get(f"metrics:{partition}", -1) + 1 for partition in self._partitions}
        self._start = dict(self._at)
