"""Compaction changes nothing: on random schedules the table over compacted batches is the table over all records."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.compacting import compacted, records_of, spans_of
from support.schedules import RETIRE_AFTER_MS, Written, cut, cuts, play, play_steadily, schedules, short_schedules
from tallystream_aggregator.table import Changes, Record, State, Table, TableSettings, pack, unpack
from tallystream_aggregator.table.compaction import ExpansionNeededError, expand
from tallystream_aggregator.table.disk import MemoryChunks

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR_MS = 3_600_000
SETTINGS = TableSettings(retire_after_ms=RETIRE_AFTER_MS, short_form_every_ms=5_000, max_metrics=8)
slow = list(HealthCheck)
jumps = st.lists(st.sampled_from([0, 0, 0, 23, 25, 72, -25, -72]), min_size=1, max_size=12)
"""By how many hours the broker's clock is off, for ten records each."""
large = st.lists(st.integers(10, 40), min_size=1, max_size=4)


def run(packed: bytes, chunks: MemoryChunks, records: list[Record]) -> tuple[Changes, bytes]:
    """Apply one batch to a state and its lives on disk; return what changed, and the state after it."""
    table = Table(unpack(packed), SETTINGS, chunks)
    table.begin_batch()
    table.apply(sorted(records, key=lambda record: (record.partition, record.offset)))
    table.notice_silence()
    changes = table.changes()
    table.disk.flush()
    return changes, pack(table.state)


def compare(played: list[Written], sizes: list[int], segment: int) -> Counter[str]:
    """Run all records and compacted ones side by side, batch by batch; return how many there were of each."""
    whole = compact = pack(State())
    disk, compact_disk = MemoryChunks(), MemoryChunks()
    told: Counter[str] = Counter()
    for batch in cut(played, sizes):
        records = records_of(batch)
        kept = compacted(records, SETTINGS, segment=segment)
        told.update(read=len(records), kept=len(kept))
        wanted, whole = run(whole, disk, records)
        try:
            got, compact = run(compact, compact_disk, kept)
        except ExpansionNeededError as needed:
            told["expanded"] += 1
            got, compact = run(compact, compact_disk, expand(kept, needed.instances, spans_of(records)))
        assert got.totals == wanted.totals
        assert letters(got) == letters(wanted)
        assert Counter(got.events) == Counter(wanted.events)
        assert published(got) == published(wanted)
        assert comparable(compact) == comparable(whole)
        assert compact_disk == disk
    return told


def jumping(played: list[Written], jumps: list[int]) -> list[Written]:
    """Return the records with append times of a broker whose clock is off by so many hours, for ten records each."""
    off_h = [jumps[number // 10 % len(jumps)] for number in range(len(played))]
    return [
        record._replace(timestamp_ms=record.timestamp_ms + hours * HOUR_MS)
        for record, hours in zip(played, off_h, strict=True)
    ]


def letters(changes: Changes) -> list[tuple[bytes | None, bytes]]:
    return [(letter.key(), letter.value()) for letter in changes.dead]


def published(changes: Changes) -> dict[bytes, Any]:
    return {row.key: row.value(epoch=1, batch=1) for row in changes.rows}


def comparable(packed: bytes) -> Any:
    """Return a state as plain values; lives leave in no order that matters."""
    state = unpack(packed)
    for gone in (state.listed, state.deleting):
        gone.sort(key=lambda retiring: (retiring.fold, retiring.life.instance, retiring.life.app, retiring.life.life))
    return msgspec.to_builtins(state, str_keys=True)


@settings(max_examples=60, deadline=None, suppress_health_check=slow)
@given(schedules, large, st.integers(5, 100), st.sampled_from([play, play_steadily]), jumps)
def test_the_table_over_compacted_batches_is_the_table_over_all_records(
    schedule: list[int],
    sizes: list[int],
    segment: int,
    played: Callable[[list[int]], list[Written]],
    jumps: list[int],
) -> None:
    """Totals, letters, events with their offsets, rows and state are the same, wherever batches and segments end."""
    compare(jumping(played(schedule), jumps), sizes, segment)


@settings(max_examples=120, deadline=None, suppress_health_check=slow)
@given(short_schedules, cuts, st.integers(2, 12), jumps)
def test_the_table_over_small_compacted_batches_is_the_table_over_all_records(
    schedule: list[int], sizes: list[int], segment: int, jumps: list[int]
) -> None:
    """As above, in few and short batches, which hypothesis can make smaller still where something differs."""
    compare(jumping(play_steadily(schedule), jumps), sizes, segment)


def test_the_schedules_have_much_to_compact_and_little_that_is_expanded() -> None:
    """What is compared above is not empty: many records are dropped, and not every batch is taken again."""
    told: Counter[str] = Counter()
    for seed in range(10):
        told += compare(play_steadily(list(range(seed * 1000, seed * 1000 + 60))), [100], 100)
    assert told["kept"] < 0.8 * told["read"]
    assert 0 < told["expanded"] < told["read"] / 100
