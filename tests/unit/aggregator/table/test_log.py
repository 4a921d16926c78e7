"""The log of a shard: it has the complete table whenever it was stored."""

from __future__ import annotations

import random
from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.fuzz import examples
from support.schedules import LONG, in_steps, play, schedules, step_sizes
from support.simulation.checkpoints import Batch
from support.steps import Published, records_of, run
from tallystream_aggregator.table import Record, State, StateError, Table, TableSettings, pack, storage
from tallystream_aggregator.table.state import Removed, unpack
from tallystream_aggregator.table.storage import ENTRY_BYTES, StoredTable, load

SETTINGS = TableSettings(short_form_every_ms=5_000, max_metrics=8, forget_after_ms=50_000)
DEFAULTS = TableSettings()


def new() -> StoredTable:
    """Return an empty table with the default settings."""
    return StoredTable(Table(State(), DEFAULTS))


def loaded(store: Batch, settings: TableSettings = DEFAULTS) -> StoredTable:
    """Return the stored table."""
    found = load(store, settings)
    assert found is not None
    return found


def whole(state: State) -> Any:
    """Return a state in a form that can be compared."""
    sums = {number: partial.stored() for number, partial in state.forgotten_sums.items()}
    return msgspec.structs.replace(state, forgotten_sums=sums)  # type: ignore[arg-type]


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
@example(LONG, [7], 0)
@given(schedules, step_sizes, st.integers(0, 2**32))
def test_a_table_gives_the_same_from_memory_and_from_its_log(schedule: list[int], sizes: list[int], seed: int) -> None:
    """After every step the log has the state, and both tables give the same in the next, however often it is copied.

    Records are also applied while the table is stored. If that is broken off, the log has what it had before.
    """
    chance = random.Random(seed)
    store, stored = Batch(0), StoredTable(Table(State(), SETTINGS))
    stored.save(store)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(storage, "COPY_FLOOR", chance.choice([0, 1_000, 100_000]))
        patch.setattr(storage, "MAX_ENTRIES", chance.choice([1, 3, 1_000]))
        patch.setattr(storage, "ENTRY_BYTES", chance.choice([1, 300, 1_000_000]))
        patch.setattr(storage, "FEW_BYTES", chance.choice([-1, 10, 16_384]))
        are_broken_off = chance.random() < 0.5
        for taken in in_steps(play(schedule), sizes):
            records = records_of(taken)
            read, before = loaded(store, SETTINGS), loaded(store, SETTINGS)
            assert whole(read.table.state) == whole(stored.table.state)
            if are_broken_off:
                broken_off = loaded(store, SETTINGS)
                run(broken_off.table, records)
                for _ in islice(broken_off.save_ahead(store), chance.randint(0, 5)):
                    pass
                assert whole(loaded(store, SETTINGS).table.state) == whole(before.table.state)
            begin = chance.randint(0, len(records))
            assert _by_key(run(read.table, records[:begin])) == _by_key(run(stored.table, records[:begin]))
            worker, other = chance.sample([read, stored], 2)  # either may run the next epoch
            left = iter(records[begin:])
            for _ in worker.save_ahead(store):
                one = list(islice(left, 1))
                assert _by_key(run(worker.table, one)) == _by_key(run(other.table, one))
            rest = list(left)
            assert _by_key(run(worker.table, rest)) == _by_key(run(other.table, rest))
            worker.save(store)
            nothing = worker.table.pop_difference()
            assert not nothing.metrics | nothing.lives | nothing.forgotten_sums
            assert nothing.removed == Removed()
            # nothing is left of an earlier copy
            assert are_broken_off or worker.size == sum(map(len, store.entries.values()))
            if not stored.is_current(store):
                stored = loaded(store, SETTINGS)


def test_a_log_that_is_replaced_is_not_read_before_its_copy_is_complete() -> None:
    """A table that does not come from the log, but from rows, replaces it. Half of both is read as neither."""
    store, stored = Batch(0), new()
    run(stored.table, (snapshot(number, 1) for number in range(10)))
    stored.save(store)
    other = new()
    run(other.table, (snapshot(number, 2, seq=2) for number in range(10)))
    next(other.save_ahead(store))
    with pytest.raises(StateError, match="no entries"):
        load(store, DEFAULTS)


def test_only_what_has_changed_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """If one instance of a thousand changes, the new entry is much smaller than the copy of the table, which stays."""
    monkeypatch.setattr(storage, "COPY_FLOOR", 0)
    store, stored = Batch(0), new()
    run(stored.table, (snapshot(number, 1) for number in range(1000)))
    stored.save(store)
    before, copy = stored.size, dict(store.entries)
    run(stored.table, [snapshot(5000, 1)])
    stored.save(store)
    assert copy.items() < store.entries.items()
    assert 0 < stored.size - before < before / 100
    assert stored.size == sum(map(len, store.entries.values()))
    assert len(loaded(store).table.state.lives) == 1001


def test_what_changes_in_every_epoch_is_stored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """If nearly all instances change, the log is copied, so it is no larger than the table."""
    monkeypatch.setattr(storage, "COPY_FLOOR", 0)
    store, stored = Batch(0), new()
    for seq in range(1, 5):
        run(stored.table, (snapshot(number, seq, seq=seq) for number in range(seq > 1, 20)))
        stored.save(store)
        assert stored.size < 1.5 * len(pack(stored.table.state))


def test_no_entry_is_much_larger_than_its_limit() -> None:
    """This holds for a copy and for the changes of an epoch. Spark's JVM has each entry in memory several times."""
    store, stored = Batch(0), new()
    for count in (1, 2):
        run(stored.table, (snapshot(number, count, seq=count, key="k" * 300) for number in range(20_000)))
        stored.save(store)
        sizes = list(map(len, store.entries.values()))
        assert sum(sizes) > ENTRY_BYTES
        assert max(sizes) < 1.2 * ENTRY_BYTES
    assert whole(loaded(store).table.state) == whole(stored.table.state)


@pytest.mark.parametrize(("metrics", "lives"), [(10, [8]), (1_000, [1] * 8)])
def test_small_lives_of_an_instance_are_packed_together(
    metrics: int, lives: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a process that exports OTLP are. Large ones may be in an entry each, as no entry is much too large."""
    monkeypatch.setattr(storage, "ENTRY_BYTES", 1)
    store, stored = Batch(0), new()
    listed = [{"name": f"n.{number}", "type": "counter", "count": 1} for number in range(metrics)]
    for life in range(8):
        one = snapshot(life, 1)
        value = msgspec.json.encode(msgspec.json.decode(one.value or b"") | {"metrics": listed})
        run(stored.table, [one._replace(key=b"app", value=value)])
    stored.save(store)
    in_entries = [sum(map(len, unpack(entry).lives.values())) for _, entry in sorted(store.entries.items())]
    assert list(filter(None, in_entries)) == lives
    assert whole(loaded(store).table.state) == whole(stored.table.state)


def test_a_table_in_memory_is_not_current_after_another_one_was_stored() -> None:
    """Every epoch writes a new token to the head, so at most one of two workers has the current table."""
    store, first = Batch(0), new()
    first.save(store)
    second = loaded(store)
    assert first.is_current(store)
    assert not new().is_current(store)
    second.save(store)
    assert not first.is_current(store)
    assert second.is_current(store)


def test_a_missing_or_damaged_entry_is_refused() -> None:
    """A log without one of its entries is not read as a smaller table. Other versions and invalid heads are refused."""
    store, stored = Batch(0), new()
    assert load(store, DEFAULTS) is None
    for number in range(4):
        run(stored.table, [snapshot(number, 1)])
        stored.save(store)
    for number in store.entries:
        for damage in (None, store.entries[number][:-1], b""):
            broken = store.copy(0)
            broken.entries = {**store.entries, number: damage}  # type: ignore[dict-item]  # None: the entry is missing
            with pytest.raises(StateError, match="damaged"):
                load(broken, DEFAULTS)
    for head, error in ((b"\x93", "damaged"), (b"\x91\x07", "version"), (b"\x91\x01", "damaged")):
        store.set_head(head)
        with pytest.raises(StateError, match=error):
            load(store, DEFAULTS)


def _by_key(changes: Published) -> Any:
    """Return changes without the order of events and rows."""
    rows = {row.key: row.value() for row in changes.rows}
    return changes.totals, changes.dead, sorted(changes.events), rows
