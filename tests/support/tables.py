"""A table fed batch by batch as Spark feeds it, through crashes, takeovers and lost checkpoints: what a reader sees.

The one place that knows how a batch is run and how a state is kept: `Tables.batch`, `Tables.rebuild`.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
from typing import TYPE_CHECKING, Any

from support.kept import Kept
from tallystream.aggregator.table import Record, State, TableSettings, stored
from tallystream.aggregator.table.batch import run_batch
from tallystream.aggregator.table.rebuild import restore
from tallystream.aggregator.table.sketches import SHARES
from tallystream.aggregator.table.standing import Standing

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from support.clocks import Batch
    from support.schedules import Written
    from tallystream.aggregator.versions import Version

Sums = dict[Any, dict[str, Any]]


def settings(**chosen: int) -> TableSettings:
    """Return settings with those of `chosen` that the table has."""
    known = {one.name for one in dataclasses.fields(TableSettings)}
    return TableSettings(**{name: value for name, value in chosen.items() if name in known})


def at_end(batch: Batch) -> dict[str, Any]:
    """Return what tells a table that forgets that every partition was read to its end."""
    return {"at_end": batch.all_read} if "at_end" in inspect.signature(run_batch).parameters else {}


class Tables:
    """A table over the records of a topic, `metrics-table`, and the newest sums by (app, name, type, tags)."""

    def __init__(self, records: Iterable[Written], chosen: TableSettings) -> None:
        self.settings = chosen
        self.store = Kept()
        self._begun = State()
        self.log: list[tuple[bytes, bytes | None, Version]] = []
        self.epoch, self.batches = 1, 0
        self.sums: Sums = {}
        self.dead: set[tuple[int, int]] = set()
        self._partitions: dict[int, list[Written]] = {}
        for record in records:
            self._partitions.setdefault(record.partition, []).append(record)
        self._at: dict[int, int] = {}

    def batch(self, batch: Batch, written: random.Random | None = None) -> list[Written]:
        """Run a batch and return what it read; with `written`, it ends in the middle of its rows."""
        records = [
            record
            for partition, ours in self._partitions.items()
            for record in ours[self._at.get(partition, 0) : batch.ends[partition]]
        ]
        store = copy.deepcopy(self.store)
        found = stored.load(store, self.settings, lambda: self._begun)
        read = [Record("metrics", r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in records]
        changes = run_batch(found.table, read, now_ms=batch.wall_ms, expired=batch.all_read, **at_end(batch)).changes
        writer = self.epoch, self.batches
        rows = [(row.key, row.value(epoch=writer[0], batch=writer[1]), writer) for row in changes.rows]
        if written is not None:
            # The shard's own record is the last: it is there only if all others are.
            self.log += [row for row in rows if not row[0].startswith(b'["shard"') and written.random() < 0.5]
            return records
        self.log += rows
        self.batches += 1
        found.save(store)
        self.store = store
        for partition, end in batch.ends.items():
            self._at[partition] = max(end, self._at.get(partition, 0))
        self.dead |= {(letter.record.partition, letter.record.offset) for letter in changes.dead}
        for total in changes.totals:
            exact = {name: value for name, value in total.totals.items() if name not in SHARES}
            number = {"lives": total.lives, "instances": total.instances}
            gauge = {"mean": total.mean} if "number" in total.totals else {}
            overflow = {"overflow": True} if total.overflow else {}
            self.sums[total.metric] = exact | gauge | number | overflow
        return records

    def take_over(self) -> None:
        """Go on with the same checkpoint as the next writer."""
        self.epoch += 1

    def rebuild(self) -> None:
        """Lose the checkpoint, and take the state from `metrics-table`, where a batch was finished."""
        if not self._at or not any(self._at.values()):
            return
        standing = Standing()
        for record in self.log:
            standing.take(*record)
        found = restore(standing, set(self.sums))
        self.epoch = found.epoch + 1
        (state,) = found.states
        self.store, self._begun = Kept(), state
        self._at = {partition: state.offsets.get(f"metrics:{partition}", -1) + 1 for partition in self._partitions}
