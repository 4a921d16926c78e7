"""Measures the memory of a worker that applies many hostile records, each with names and lives of its own."""

from __future__ import annotations

import gc
import itertools
import random
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.limits.measuring import table_of
from benchmarks.limits.snapshots import NOW_MS, VALUES, Row, each, metric, run, sketched, snapshot
from benchmarks.table.measuring import MemoryStore, apply
from tallystream_aggregator.table.records.decode import Record
from tallystream_aggregator.table.storage import StoredTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEP_BYTES = 4 << 20


def records() -> Iterator[Record]:
    """Yield records without end, each kind in its turn, from 50 apps."""
    offsets = itertools.count()
    for number in itertools.count():
        app = f'"{number % 50}"'
        for key, value in _KINDS[number % len(_KINDS)](number, app):
            yield Record("metrics", 0, next(offsets), NOW_MS, key, value, NOW_MS)


def _names(number: int, app: str) -> Iterator[Row]:
    """Metrics of one type, with names of their own."""
    kind = list(VALUES)[number // len(_KINDS) % len(VALUES)]
    yield b"h%d" % number, snapshot(each(65_536, metric(kind, f"{number:x}-%x")), number, app=app)


def _sketches(number: int, app: str) -> Iterator[Row]:
    """Histograms with names of their own, and as many buckets as a usual one."""
    item = sketched(200, run(0, *[1] * 200)).replace("%x", f"{number:x}-%x")
    yield b"h%d" % number, snapshot(each(65_536, item), number, app=app)


def _rows(number: int, app: str) -> Iterator[Row]:
    """Counters that other lives have, too, in an order of their own, and one that is refused."""
    items = each(65_536, metric("counter", "%x"))
    shuffle = random.Random(number).shuffle
    shuffle(items)
    yield b"h%d" % number, snapshot([*items, "1"], number, app=app)


def _lives(number: int, app: str) -> Iterator[Row]:
    """Lives with one metric."""
    for other in range(300):
        yield (
            b"i%d" % (number % 1_000),
            snapshot([metric("counter", "n")], number * 300 + other, app=app, final="true"),
        )


def _instances(number: int, app: str) -> Iterator[Row]:
    """Instances with one empty life and a long ID."""
    for other in range(60):
        yield b"%01000d" % (number * 60 + other), snapshot([], number, app=app)


def _parts(number: int, app: str) -> Iterator[Row]:
    """Parts of one life, without metrics."""
    for part in range(300):
        yield b"h%d" % number, snapshot([], number, app=app, part=str(part))


_KINDS: list[Callable[[int, str], Iterator[Row]]] = [_names, _sketches, _rows, _lives, _instances, _parts]


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
    counted = table._rows.size._used[None]  # it is published nowhere
    return (
        f"{made >> 20} MB of hostile records: {grown >> 20} MB of memory, {len(state.metrics):,} metrics, "
        f"{lives:,} lives, {state.dead:,} dead letters; counted: {counted >> 20} MB; {stored.size >> 20} MB of state"
    )


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096
