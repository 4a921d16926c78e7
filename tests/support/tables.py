"""A table fed batch by batch as Spark feeds it, through crashes, takeovers and lost checkpoints: what a reader sees.

The one place that knows how a batch is run and how a state is kept: `Tables.batch`, `Tables.rebuild`.
"""

from __future__ import annotations

import copy
import dataclasses
import random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from support.kept import Kept
from tallystream_aggregator.table import Record, State, TableSettings, combiners, storage
from tallystream_aggregator.table.arithmetic.sketches import SHARES
from tallystream_aggregator.table.combiners import CombinerGroup, combine_shards
from tallystream_aggregator.table.outputs import Total
from tallystream_aggregator.table.restore.latest_rows import LatestRows, RebuildError
from tallystream_aggregator.table.restore.restore import included_by_all, restore
from tallystream_aggregator.table.shards import ShardSum, group_of, shard_of
from tallystream_aggregator.table.table import Republish, run_batch
from tallystream_aggregator.verify.silence import Batch as Finished

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from support.clocks import Batch
    from support.schedules import Written
    from tallystream_aggregator.table import Changes
    from tallystream_aggregator.table.storage import StoredTable
    from tallystream_aggregator.versions import Version

Sums = dict[Any, dict[str, Any]]
EventId = tuple[str, str, str, str, int, str]
"""(kind, app, instance, life, ts_ms, detail)"""


def settings(**chosen: int) -> TableSettings:
    """Return settings with those of `chosen` that the table has."""
    known = {one.name for one in dataclasses.fields(TableSettings)}
    return TableSettings(**{name: value for name, value in chosen.items() if name in known})


class Tables:
    """A table of so many shards over the records of a topic, with its combiners and `metrics-table`.

    `sums` are the newest ones by (app, name, type, tags), as a reader of `metrics-agg` has them. A batch runs the
    shards that have records, and the others where it reads all partitions to their end, or by `chance`: these were
    woken. With `strict` it runs none but those that have records, and no batch without records, as Spark does.
    `published` tells whether a table that was rebuilt has published its sums. `ledger` has the finished batches that
    read something, `rows` all sums that were published, as the key and the value of a record.
    """

    def __init__(
        self,
        records: Iterable[Written],
        chosen: TableSettings,
        shards: int = 1,
        chance: random.Random | None = None,
        *,
        strict: bool = False,
    ) -> None:
        self.settings = chosen
        self._strict = strict
        self.ledger: list[Finished] = []
        self.rows: list[tuple[bytes, bytes]] = []
        self._chance = chance or random.Random(0)
        self.log: list[tuple[bytes, bytes | None, Version, int]] = []
        self.epoch, self.now_ms = 1, 0
        self.sums: Sums = {}
        self.dead: set[tuple[int, int]] = set()
        self.events: set[EventId] = set()
        self.cuts = 0
        self._partitions: dict[int, list[Written]] = {}
        self.extend(records)
        self._at: dict[int, int] = {}
        self._start: dict[int, int] = {}
        self._begin(
            [State(shard=shard, shards=shards) for shard in range(shards)], [CombinerGroup() for _ in range(shards)]
        )

    def _begin(self, states: list[State], groups: list[CombinerGroup]) -> None:
        self._begun, self._groups = states, groups
        self.stores = [Kept() for _ in states]
        self._combiners = [Kept() for _ in groups]
        self.batches = 0
        self._first_row = len(self.ledger)
        self.published = False

    @property
    def shards(self) -> int:
        """The number of shards."""
        return len(self.stores)

    @property
    def states(self) -> list[State]:
        """The state of each shard, as the next batch finds it."""
        return [self._load(shard, store).table.state for shard, store in enumerate(self.stores)]

    @property
    def is_begun(self) -> bool:
        """Whether a batch has read something."""
        return any(self._at.values())

    def batch(
        self,
        batch: Batch,
        written: random.Random | None = None,
        republish: Mapping[int, Republish] = MappingProxyType({}),
    ) -> list[Written]:
        """Run a batch and return what it read; with `written`, it is cut off when part of its rows were written.

        `republish` has what each shard is to publish again.
        """
        by_shard: dict[int, list[Written]] = {}
        records = [
            record
            for partition, ours in self._partitions.items()
            for record in ours[self._at.get(partition, 0) : batch.ends[partition]]
        ]
        if self._strict and not records:
            return []
        for record in records:
            by_shard.setdefault(shard_of(record.key, self.shards), []).append(record)
        now_ms = max(batch.wall_ms, self.now_ms + 1)  # no two batches of Spark's have the same time
        waiting = [] if batch.all_read else [f"metrics:{partition}" for partition in batch.ends]
        ran: dict[int, tuple[StoredTable, Kept, Changes]] = {}
        for shard in range(self.shards):
            if (
                shard in by_shard
                or shard in republish
                or (batch.all_read and not self._strict)
                or (self.shards > 1 and not self._strict and self._chance.random() < 0.1)
            ):
                store = copy.deepcopy(self.stores[shard])
                found = self._load(shard, store)
                read = [
                    Record("metrics", r.partition, r.offset, r.timestamp_ms, r.key, r.value)
                    for r in by_shard.get(shard, ())
                ]
                again = republish.get(shard)
                changes = run_batch(found.table, read, now_ms=now_ms, waiting=waiting, republish=again)
                ran[shard] = found, store, changes
        writer = self.epoch, self.batches
        for shard, (_, _, changes) in ran.items():
            rows = [(r.key, r.value(epoch=writer[0], batch=writer[1]), writer, shard) for r in changes.rows]
            # The shard's own record is the last: it is there only if all others are.
            cut_off = written is not None and written.random() < 0.7
            self.log += [row for row in rows[:-1] if self._chance.random() < 0.5] if cut_off else rows
        if written is not None:
            return records
        self._finish(ran)
        self.now_ms = now_ms
        start, end = ({f"metrics:{partition}": at for partition, at in read.items()} for read in (self._at, batch.ends))
        begins = len(self.ledger) == self._first_row
        if records:
            row = Finished(self.epoch, self.batches, now_ms, start, end, frozenset(waiting), begins, self.shards)
            self.ledger.append(row)
        self.batches += 1
        for partition, last in batch.ends.items():
            self._at[partition] = max(last, self._at.get(partition, 0))
        return records

    def _finish(self, ran: dict[int, tuple[StoredTable, Kept, Changes]]) -> None:
        shard_sums: list[ShardSum] = []
        for shard, (found, store, changes) in ran.items():
            found.save(store)
            self.stores[shard] = store
            self.dead |= {(letter.record.partition, letter.record.offset) for letter in changes.dead}
            self.events |= {(*event[:5], event.detail) for event in changes.events if event.kind != "overflow"}
            self._see(changes.totals)
            shard_sums += changes.shard_sums
        if self.shards > 1:
            self._combine(shard_sums)
        self.published = self.published or self.shards > 1 or bool(ran)

    def _combine(self, shard_sums: list[ShardSum]) -> None:
        for group, store in enumerate(self._combiners):
            mine = [one for one in shard_sums if group_of(one.metric, self.shards) == group]
            found = combiners.load(store, lambda group=group: self._groups[group])  # type: ignore[misc]
            if mine or not found.group.published:
                found.group.update(mine)
                totals, _ = found.group.changes()
                found.save(store)
                self._see(totals)

    def _see(self, totals: Iterable[Total]) -> None:
        for total in totals:
            exact = {name: value for name, value in total.totals.items() if name not in SHARES}
            number = {"lives": total.lives, "instances": total.instances}
            gauge = {"mean": total.mean} if "number" in total.totals else {}
            overflow = {"overflow": True} if total.overflow else {}
            self.sums[total.metric] = exact | gauge | number | overflow
            self.rows.append((total.key(), total.value(epoch=self.epoch, batch=self.batches)))

    def _load(self, shard: int, store: Kept) -> StoredTable:
        return storage.load(store, self.settings, lambda: copy.deepcopy(self._begun[shard]))

    def extend(self, records: Iterable[Written]) -> None:
        """Append records to the topic."""
        for record in records:
            self._partitions.setdefault(record.partition, []).append(record)

    def take_over(self) -> None:
        """Go on with the same checkpoint as the next writer."""
        self.epoch += 1

    def overwrite(self, chance: random.Random) -> dict[int, Republish]:
        """Have a writer before write some of its rows and sums again; then the topics are compacted.

        Return what each shard has to repair.
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
        """Let the broker compact `metrics-table`: of each key the last record is left, and no deletion."""
        last = {(partition, key): number for number, (key, _, _, partition) in enumerate(self.log)}
        self.log = [self.log[number] for number in sorted(last.values()) if self.log[number][1] is not None]

    def rebuild(self, more: int = 0, *, behind: bool = False) -> None:
        """Lose the checkpoint, and take the states from `metrics-table`, where a batch was finished.

        The table is cut into `more` shards than it had, where it may be. With `behind`, the ledger has no batch since
        the checkpoint began.
        """
        if not self.is_begun:
            return
        standing = LatestRows()
        for record in self._chance.sample(self.log, len(self.log)):  # partitions are read in any order
            standing.add(*record)
        known = self._start if behind else self._at
        if behind:
            del self.ledger[self._first_row :]
        ends = {f"metrics:{partition}": end for partition, end in known.items()}
        try:
            found = restore(standing, set(self.sums), shards=self.shards + more, finished=ends)
            self.cuts += more > 0
        except RebuildError:
            found = restore(standing, set(self.sums), finished=ends)
        self.epoch = max(self.epoch, found.epoch) + 1
        self._begin(found.states, combine_shards(found.states))
        included = included_by_all(found.states)
        self._at = {partition: included.get(f"metrics:{partition}", -1) + 1 for partition in self._partitions}
        self._start = dict(self._at)
