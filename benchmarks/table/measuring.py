"""Measures the cost of an update in the table, in one process: decode and apply, changes, rows, state."""

from __future__ import annotations

import gc
import time
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from benchmarks.table.loads import OTLP_TOPIC
from tallystream import record
from tallystream_aggregator.instances import INSTANCES
from tallystream_aggregator.stream.broker import Chunk, Place
from tallystream_aggregator.stream.compaction import StepRecords
from tallystream_aggregator.table.limits import TableSettings
from tallystream_aggregator.table.state import State
from tallystream_aggregator.table.storage import StoredTable
from tallystream_aggregator.table.table import Changes, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.table.loads import Step
    from tallystream_aggregator.stream.broker import RawRecord
    from tallystream_aggregator.table.records.decode import Record
    from tallystream_aggregator.table.rows import TableRecord


TABLE_BYTES = 4 << 30
"""The limit of the table: the 86,400 lives of `restarts` count 1.9 GB, and an app may have three quarters of it."""


class Cost(NamedTuple):
    """Processor time in µs for each update: the mean over all updates, and the mean of the worst step.

    `apply` is decoding and applying. `changes` is what the end of a step takes: sums and rows. `rows` is the encoding
    of the records to publish. `state` is the storing of the state. `total` is all of them. `exact` tells whether the
    sums were right.
    """

    steps: int
    apply: float
    changes: float
    rows: float
    state: float
    total: float
    worst: float
    exact: bool


class Expected:
    """The expected sums of snapshots. The records of a life have to be in the order of their seqs."""

    def __init__(self) -> None:
        self.sums: Counter[str] = Counter()
        self._newest: dict[bytes | None, tuple[str, dict[str, int]]] = {}

    def add(self, records: Iterable[Record]) -> None:
        """Add the counts that the table accepts: no decreasing count, and no metric above the limit of a life."""
        max_metrics = TableSettings().max_metrics
        for one in records:
            try:
                snapshot = record.decode(one.value or b"")
            except msgspec.DecodeError:
                continue
            life, counts = self._newest.get(one.key, ("", {}))
            if life != snapshot.life:
                counts = {}
                self._newest[one.key] = snapshot.life, counts
            for metric in snapshot.metrics:
                if not isinstance(metric, record.Counter | record.Histogram):
                    raise TypeError(f"{metric.name}: a {metric.type} is not in these loads")
                before = counts.get(metric.name, 0)
                if metric.count >= before and (before or len(counts) < max_metrics):
                    counts[metric.name] = metric.count
                    self.sums[metric.name] += metric.count - before


class MemoryStore:
    """A table's store in memory."""

    def __init__(self) -> None:
        self._head: bytes | None = None
        self._entries: dict[int, bytes] = {}

    def head(self) -> bytes | None:
        """Return the head."""
        return self._head

    def set_head(self, head: bytes) -> None:
        """Replace the head."""
        self._head = head

    def entry(self, number: int) -> bytes | None:
        """Return an entry."""
        return self._entries.get(number)

    def add(self, number: int, entry: bytes) -> None:
        """Add an entry."""
        self._entries[number] = entry

    def remove(self, number: int) -> None:
        """Remove an entry."""
        del self._entries[number]

    def clear(self) -> None:
        """Remove all entries."""
        self._entries.clear()


class _Sum(msgspec.Struct):
    count: int


_decode = msgspec.json.Decoder(_Sum).decode


def apply(table: Table, records: Iterable[Record]) -> None:
    """Apply records, which are in offset order in each partition, as a step of the loop does."""
    step = StepRecords(table)
    chunks: dict[Place, list[RawRecord]] = {}
    for one in records:
        rows = chunks.setdefault(Place(one.topic, one.partition), [])
        rows.append((one.offset, one.timestamp_ms, one.key, one.value))
    for place, rows in chunks.items():
        step.add(Chunk(place, rows, rows[-1][0] + 1))
    step.end()


def measure(steps: Iterable[Step], *, skip: int = 2) -> Cost:
    """Apply the steps to a new table, as an aggregator does. Return the cost of those after the first `skip`."""
    store = MemoryStore()
    table = Table(State(), TableSettings(otlp_topics=(OTLP_TOPIC,), max_table_bytes=TABLE_BYTES))
    stored, spent, updates = StoredTable(table), list[tuple[float, ...]](), list[int]()
    expected, sums = Expected(), dict[str, int]()
    for number, step in enumerate(steps):
        gc.collect()
        gc.disable()  # as in a task of the aggregator
        try:
            times = [time.process_time()]
            apply(table, step.records)
            times.append(time.process_time())
            changes, rows = table.outputs(), table.rows()
            times.append(time.process_time())
            encode(changes, rows)
            times.append(time.process_time())
            stored.save(store)
            times.append(time.process_time())
        finally:
            gc.enable()
        if number >= skip:
            spent.append((*(later - earlier for earlier, later in pairwise(times)), times[-1] - times[0]))
            updates.append(step.updates)
        expected.add(step.records if step.snapshots is None else step.snapshots)
        totals = (one for one in changes.totals if one.metric[2] != INSTANCES)
        sums |= {one.metric[1]: _decode(one.value()).count for one in totals}
    means = [sum(column) / sum(updates) * 1e6 for column in zip(*spent, strict=True)]
    worst = max(parts[-1] / count * 1e6 for parts, count in zip(spent, updates, strict=True))
    return Cost._make([len(spent), *means, worst, sums == expected.sums])


def encode(changes: Changes, rows: Iterable[TableRecord]) -> list[Any]:
    """Return the keys and values of all records that a step publishes."""
    out: list[Any] = [(one.key(), one.value()) for one in changes.dead]
    out += [(one.key(), one.value()) for one in changes.events]
    out += [(one.key(), one.value()) for one in changes.totals]
    out += [(one.key, one.value()) for one in rows]
    return out
