"""Measures the memory of a worker that applies many hostile records, each with names and lives of its own."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.limits.measuring import table_of
from benchmarks.limits.snapshots import NOW_MS, VALUES, each, metric, snapshot
from benchmarks.table.measuring import MemoryStore, apply
from tallystream_aggregator.table.records.decode import Record
from tallystream_aggregator.table.storage import StoredTable

if TYPE_CHECKING:
    from collections.abc import Iterator

STEP_BYTES = 4 << 20


def records() -> Iterator[Record]:
    """Yield records without end: timers, gauges and counters with short names, and many lives with one metric."""
    offsets = itertools.count()
    for number in itertools.count():
        kind = list(VALUES)[number % len(VALUES)]
        if number % 2:
            items = each(65_536, metric(kind, f"{number:x}-%x"))
            yield Record(
                "metrics",
                0,
                next(offsets),
                NOW_MS,
                b"h%d" % number,
                snapshot(items, number, app=f'"{number % 50}"'),
                NOW_MS,
            )
            continue
        for other in range(300):
            value = snapshot([metric(kind, "n")], number * 300 + other, app=f'"{number % 50}"', final="true")
            yield Record("metrics", 0, next(offsets), NOW_MS, b"i%d" % (number % 1_000), value, NOW_MS)


def grow(megabytes: int) -> str:
    """Apply so many MB of hostile records to a table, and return a line with the memory that it takes then."""
    table, store = table_of(), MemoryStore()
    stored, made = StoredTable(table), 0
    source = records()
    begin = _resident()
    while made < megabytes << 20:
        step, size = [], 0
        while size < STEP_BYTES:
            step.append(next(source))
            size += len(step[-1].value or b"")
        apply(table, step)
        table.outputs()
        table.rows()
        made += size
    gc.collect()
    grown = _resident() - begin
    stored.save(store)
    state = table.state
    lives = sum(map(len, state.lives.values()))
    return (
        f"{made >> 20} MB of hostile records: {grown >> 20} MB of memory, {len(state.metrics):,} metrics, "
        f"{lives:,} lives, {state.dead:,} dead letters; {stored.size >> 20} MB of state"
    )


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096
