"""The log of a shard: after every batch it has the complete table."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.memory_store import MemoryStore
from support.schedules import TopicRecord, batch_sizes, in_batches, play, schedules
from tallystream_aggregator.table import (
    Changes,
    Record,
    State,
    StateVersionError,
    Table,
    TableSettings,
    pack,
    storage,
    unpack,
)
from tallystream_aggregator.table.storage import ENTRY_BYTES, load

SETTINGS = TableSettings(short_form_every_ms=5_000, max_metrics=8)
DEFAULTS = TableSettings()


def run(table: Table, batch: list[TopicRecord]) -> Changes:
    """Run one batch."""
    in_order = sorted(batch, key=lambda record: (record.partition, record.offset))
    table.apply(Record("metrics", r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in in_order)
    table.notice_silence()
    return table.changes()


def snapshot(life: int, count: int, seq: int = 1, key: str = "app") -> Record:
    """Return the record of a snapshot with one counter."""
    value = (
        f'{{"v":1,"app":"a","life":"01HF7YAT00{life:016d}","part":0,"seq":{seq},"ts":0,"every_ms":1000,"final":false,'
        f'"metrics":[{{"name":"n","type":"counter","count":{count}}}]}}'
    )
    return Record(
        "metrics", 0, life + 1_000_000 * (seq - 1), 1_700_000_000_000, f"{key}-{life}".encode(), value.encode()
    )


@examples(50)
@given(schedules, batch_sizes, st.integers(0, 2**32))
def test_a_table_gives_the_same_from_memory_and_from_its_log(schedule: list[int], sizes: list[int], seed: int) -> None:
    """After every batch the log has the state, and both tables give the same next batch, however often it is copied."""
    chance = random.Random(seed)
    store, stored = MemoryStore(), load(MemoryStore(), SETTINGS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "COPY_FLOOR", chance.choice([0, 1_000, 100_000]))
        patch.setattr(storage, "MAX_ENTRIES", chance.choice([1, 3, 1_000]))
        patch.setattr(storage, "ENTRY_BYTES", chance.choice([1, 300, 1_000_000]))
        patch.setattr(storage, "_SAMPLE", chance.choice([1, 20]))
        for batch in in_batches(play(schedule), sizes):
            read = load(store, SETTINGS)
            assert read.table.state == stored.table.state
            assert _by_key(run(read.table, batch)) == _by_key(run(stored.table, batch))
            chance.choice([read, stored]).save(store)  # either worker may run the next batch
            if not stored.log.is_current(store):
                stored = load(store, SETTINGS)


def test_a_batch_stores_only_what_it_changes() -> None:
    """If one instance of a thousand changes, the new entry is much smaller than a copy of the table."""
    store = MemoryStore()
    stored = load(store, DEFAULTS)
    stored.table.apply(snapshot(number, 1) for number in range(1000))
    stored.table.changes()
    stored.save(store)
    before = stored.log.size
    stored.table.apply([snapshot(5000, 1)])
    stored.table.changes()
    stored.save(store)
    assert 0 < stored.log.size - before < before / 100
    assert stored.log.size == sum(map(len, store.entries.values()))
    assert len(load(store, DEFAULTS).table.state.lives) == 1001


def test_no_entry_is_much_larger_than_its_limit() -> None:
    """This holds for a copy and for the changes of a batch. Spark's JVM has each entry in memory several times."""
    store = MemoryStore()
    stored = load(store, DEFAULTS)
    for count in (1, 2):
        stored.table.apply(snapshot(number, count, seq=count, key="k" * 300) for number in range(20_000))
        stored.table.changes()
        before = set(store.entries)
        stored.save(store)
        new = [len(store.entries[number]) for number in store.entries.keys() - before]
        assert sum(new) > ENTRY_BYTES
        assert max(new) < 1.2 * ENTRY_BYTES
    assert load(store, DEFAULTS).table.state == stored.table.state


def test_a_table_in_memory_is_not_current_after_another_batch_was_stored() -> None:
    """Every batch writes a new token to the head, so at most one of two workers has the current table."""
    store = MemoryStore()
    first = load(store, DEFAULTS)
    first.save(store)
    second = load(store, DEFAULTS)
    assert first.log.is_current(store)
    assert not load(MemoryStore(), DEFAULTS).log.is_current(store)
    second.save(store)
    assert not first.log.is_current(store)
    assert second.log.is_current(store)


def test_the_initial_state_is_read_only_if_nothing_is_stored() -> None:
    """A shard begins with its initial state only once."""
    initial = Table(State())
    initial.apply([snapshot(1, 5)])
    store = MemoryStore()
    stored = load(store, DEFAULTS, lambda: unpack(pack(initial.state)))
    assert stored.table.state == initial.state
    stored.save(store)
    assert len(load(store, DEFAULTS, pytest.fail).table.state.lives) == 1


def test_a_missing_or_damaged_entry_is_refused() -> None:
    """A log without one of its entries is not read as a smaller table. Other versions and invalid heads are refused."""
    store, stored = MemoryStore(), load(MemoryStore(), DEFAULTS)
    for number in range(4):
        stored.table.apply([snapshot(number, 1)])
        stored.table.changes()
        stored.save(store)
    for number in store.entries:
        for damage in (None, store.entries[number][:-1], b""):
            broken = MemoryStore()
            broken.heads = store.heads
            broken.entries = {**store.entries, number: damage}  # type: ignore[dict-item]  # None: the entry is missing
            with pytest.raises(StateVersionError, match="damaged"):
                load(broken, DEFAULTS)
    for head, error in ((b"\x93", "damaged"), (b"\x91\x07", "version 7"), (b"\x91\x01", "damaged")):
        store.set_head(head)
        with pytest.raises(StateVersionError, match=error):
            load(store, DEFAULTS)


def _by_key(changes: Changes) -> Any:
    """Return changes without the order of events and rows."""
    rows = {row.key: row.value(epoch=1, batch=1) for row in changes.rows}
    return changes.totals, changes.dead, sorted(changes.events), rows
