"""Incomplete snapshots: each metric has a seq of its own, and a metric that a snapshot lacks stays current."""

from __future__ import annotations

import json
from typing import Any

from support.memory_store import MemoryStore
from tallystream_aggregator.table import Record, State, Table, TableSettings, storage
from tallystream_aggregator.table.table import Changes, run_batch

BEGIN_MS = 1_700_000_000_000
LIFE = "01HF7YAT00" + "A" * 16


def snapshot(seq: int, *, complete: bool = False, **values: float) -> bytes:
    """Return a snapshot. Names that begin with g are gauges, the others counters."""
    metrics = [
        {"name": name, "type": "gauge", "value": value}
        if name.startswith("g")
        else {"name": name, "type": "counter", "count": value}
        for name, value in values.items()
    ]
    header = {"app": "shop", "life": LIFE, "part": 0, "seq": seq, "ts": 0, "every_ms": 60_000, "final": False}
    return json.dumps({**header, "complete": complete, "metrics": metrics}).encode()


def apply(table: Table, *values: bytes) -> Changes:
    """Apply records of one instance, at the next offsets."""
    first = table.state.records
    records = [Record("metrics", 0, first + n, BEGIN_MS, b"app-1", value) for n, value in enumerate(values)]
    return run_batch(table, records, now_ms=BEGIN_MS)


def sums(changes: Changes) -> dict[str, Any]:
    """Return the count or the sum of each metric that changed."""
    return {one.metric[1]: one.totals.get("count", one.totals.get("sum")) for one in changes.totals}


def test_each_metric_takes_its_highest_seq_in_any_order() -> None:
    """Snapshots with some of the metrics arrive with equal seqs and out of order. Each metric has its newest value."""
    table = Table(State())
    changes = apply(
        table, snapshot(5, a=50), snapshot(5, b=7), snapshot(4, b=6, c=1), snapshot(3, a=30), snapshot(6, c=2)
    )
    assert sums(changes) == {"a": 50, "b": 7, "c": 2}
    assert changes.dead == []


def test_a_metric_that_is_missing_stays_current() -> None:
    """A gauge that a newer incomplete snapshot lacks still counts. With complete snapshots it would not."""
    changes = apply(Table(State()), snapshot(1, a=1, g=5), snapshot(2, a=2))
    assert sums(changes) == {"a": 2, "g": 5}
    changes = apply(Table(State()), snapshot(1, complete=True, a=1, g=5), snapshot(2, complete=True, a=2))
    assert sums(changes) == {"a": 2, "g": None}


def test_a_count_that_falls_is_refused_only_in_order() -> None:
    """A lower count with a higher seq is a dead letter. With a lower seq it is an old value and changes nothing."""
    table = Table(State())
    assert [letter.reason.split(",")[0] for letter in apply(table, snapshot(5, a=50), snapshot(6, a=49)).dead] == [
        "the count fell within a life"
    ]
    changes = apply(table, snapshot(4, a=49))
    assert (changes.totals, changes.dead) == ([], [])


def test_a_life_has_either_complete_or_incomplete_snapshots() -> None:
    """A snapshot of the other kind is a dead letter."""
    for complete in (False, True):
        changes = apply(Table(State()), snapshot(1, complete=complete, a=1), snapshot(2, complete=not complete, a=2))
        assert sums(changes) == {"a": 1}
        assert [letter.reason.split(":")[0] for letter in changes.dead] == ["complete"]


def test_a_loaded_table_accepts_older_metrics_of_an_incomplete_life() -> None:
    """Storing and loading the table makes no difference to later snapshots."""
    store = MemoryStore()
    found = storage.load(store, TableSettings())
    apply(found.table, snapshot(5, a=50))
    found.save(store)
    changes = apply(storage.load(store, TableSettings()).table, snapshot(4, a=40, b=4))
    assert sums(changes) == {"b": 4}
