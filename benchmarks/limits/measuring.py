"""Measures what the records of an input cost: processor time, output, state and memory."""

from __future__ import annotations

import gc
import time
import tracemalloc
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.limits.otlp import TOPIC
from benchmarks.speed import work_ms
from benchmarks.table.measuring import MemoryStore, apply
from tallystream_aggregator.otlp import decode, scopes
from tallystream_aggregator.otlp.identity import KnownResources
from tallystream_aggregator.table.limits import TableSettings
from tallystream_aggregator.table.restore import LatestRows, restore
from tallystream_aggregator.table.state import State, pack
from tallystream_aggregator.table.storage import StoredTable
from tallystream_aggregator.table.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.limits.snapshots import Input
    from tallystream_aggregator.table.records.decode import Record

RUNS = 4
"""How often an input is measured at most whose time is beyond the limit: other processes make a run slower."""

WORK_MS = 10.0
"""What the fixed piece of work of `benchmarks/speed.py` takes where the limits in ms hold. Times are scaled to it."""

FIXED_MS, MS = 1.0, 50.0
"""What a record may cost in any case, and besides for each 64 KiB, in ms."""

FIXED_BYTES, BYTES = 4_096, 10.0
"""How many bytes of output and state a record may make in any case, and besides for each byte."""


class Cost(NamedTuple):
    """The cost of the records of an input, of which there are `records` with `size` bytes, keys included.

    `ms` is processor time on a machine of the speed `WORK_MS`, `output` the bytes of sums, dead letters, events and
    rows, `state` the bytes that are stored, `memory` the bytes by which the table has grown, all of them in total.
    """

    records: int
    size: int
    ms: float
    output: int
    state: int
    memory: int

    @property
    def ms_of_64_kib(self) -> float:
        """Processor time for each 64 KiB in ms, beyond what every record may cost."""
        return max(0.0, self.ms - self.records * FIXED_MS) * 65_536 / self.size

    @property
    def bytes_of_byte(self) -> float:
        """Bytes of output and state for each byte, beyond what every record may make."""
        return max(0, self.output + self.state - self.records * FIXED_BYTES) / self.size

    @property
    def is_within(self) -> bool:
        """Whether this is what a record may cost. Memory has limits of its own: those of metrics and lives."""
        return self.ms_of_64_kib <= MS and self.bytes_of_byte <= BYTES


class _Output(NamedTuple):
    bytes: int
    state: int


def table_of(records: Iterable[Record] = ()) -> Table:
    """Return a table that has published and stored these records."""
    table = Table(State(), TableSettings(otlp_topics=(TOPIC,)))
    _step(table, list(records))
    return table


def _step(table: Table, records: list[Record]) -> _Output:
    """Take a step, from its records to what it publishes and stores."""
    apply(table, records)
    changes, made = table.outputs(), 0
    for total in changes.totals:
        made += len(total.key()) + len(total.value())
    for letter in changes.dead:
        made += len(letter.key() or b"") + len(letter.value())
    for event in changes.events:
        made += len(event.key()) + len(event.value())
    for row in table.rows():
        made += len(row.key) + len(row.value() or b"")
    return _Output(made, len(pack(table.pop_difference())))


def cost(one: Input) -> Cost:
    """Return the cost of an input. The time is the shortest of several runs if it is long."""
    size = sum(len(record.key or b"") + len(record.value or b"") for record in one.records)
    output, ms = _timed(one)
    found = Cost(len(one.records), size, ms, *output, _memory(one))
    for _ in range(RUNS - 1):
        if found.ms_of_64_kib > MS:
            found = found._replace(ms=min(found.ms, _timed(one)[1]))
    return found


def _timed(one: Input) -> tuple[_Output, float]:
    """Return what an input makes, and the processor time in ms. Its OTLP points are new to the reader in each run."""
    decode._scopes, decode._resources = scopes.KnownScopes(), KnownResources()  # they are the process's
    table = table_of(one.before)
    gc.collect()
    gc.disable()  # as in a task of the aggregator
    try:
        scale = WORK_MS / work_ms(3)
        began = time.process_time()
        output = _step(table, one.records)
        ms = (time.process_time() - began) * 1_000
    finally:
        gc.enable()
    return output, ms * scale


def _memory(one: Input) -> int:
    """Return the bytes by which a table grows."""
    table = table_of(one.before)
    gc.collect()
    tracemalloc.start()
    try:
        _step(table, one.records)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def restore_cost(one: Input) -> Cost:
    """Return what it costs to make the table of an input again from its rows. The records are the rows."""
    table = table_of([*one.before, *one.records])
    table.publish_all()
    latest, size = LatestRows(), 0
    rows = table.rows()
    for row in rows:
        value = row.value()
        size += len(row.key) + len(value or b"")
        latest.add(row.key, value)
    scale = WORK_MS / work_ms(3)
    began = time.process_time()
    again = Table(restore(latest).states[0], table.settings)
    ms = (time.process_time() - began) * 1_000 * scale
    store = MemoryStore()
    StoredTable(again).save(store)
    return Cost(len(rows), size, ms, 0, 0, 0)
