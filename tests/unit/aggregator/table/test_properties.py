"""On random schedules the table publishes the sums of verify's replay, however it runs.

It takes steps of any size, in one or several shards, and begins again from its state or its rows. The records are
everything that may be written to a topic, also with broker clocks that jump. test_step_records.py has steps that leave
out superseded records, test_loop_simulation.py the loop around the table.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.divisions import DAY_MS, divide
from support.fuzz import examples
from support.replayed import lasting, replay
from support.runs import FORGET_AFTER_MS, RULES, UNLIMITED, check, jump, move, new_tables, require_equal, take
from support.schedules import TopicRecord, jumps, play, schedules, short_schedules, step_sizes
from tallystream import record
from tallystream.ulid import new_ulid
from tallystream_aggregator.table.records.decode import CLOCK_KEY, Forget, clock_value

chances = st.randoms(use_true_random=False)
few_or_many = st.one_of(short_schedules, short_schedules, schedules)


@examples(200)
@given(few_or_many, step_sizes | st.just([1_000]))
def test_the_table_equals_the_replay_in_any_steps(schedule: list[int], sizes: list[int]) -> None:
    """Sums of every type, lives, dead letters, events and stale counts are the same, and no count falls."""
    records = play(schedule)
    check(records, divide(records, sizes))


@examples(100)
@given(few_or_many, step_sizes, st.integers(2, 5))
def test_no_result_depends_on_shards(schedule: list[int], sizes: list[int], shards: int) -> None:
    """Sums, dead letters, events with their times, and numbers of records equal the replay's."""
    records = play(schedule, shards)
    check(records, divide(records, sizes), shards=shards)


@examples(60)
@given(few_or_many, step_sizes, chances)
def test_the_table_equals_the_replay_while_instances_move(
    schedule: list[int], sizes: list[int], chance: random.Random
) -> None:
    """Each instance has records in several partitions, which are read in any order."""
    records = move(play(schedule), chance)
    check(records, divide(records, sizes, chance))


@pytest.mark.parametrize("removal", [None, b'{"v":1,"forget":{}}'], ids=["tombstone", "forget record"])
def test_a_snapshot_that_arrives_again_after_its_removal_is_stale(removal: bytes | None) -> None:
    """The instance has moved to the partition of the removal and of the copy. The first snapshot was in another one."""
    life = new_ulid(0)

    def snapshot(part: int) -> bytes:
        metrics: list[record.Metric] = [record.Counter(name=f"n{part}", count=4)]
        header: dict[str, Any] = {"app": "a", "life": life, "part": part, "seq": part + 1, "every_ms": 1000}
        return record.encode(record.Snapshot(**header, ts=0, final=False, metrics=metrics))

    offsets, records = Counter[int](), []
    for partition, value in [(1, snapshot(0)), (0, snapshot(1)), (0, removal), (0, snapshot(0))]:
        records.append(TopicRecord(b"i", value, 1000, partition, offsets[partition]))
        offsets[partition] += 1
    check(records, [{0: 0, 1: 1}, dict(offsets)])
    assert [fields["count"] for fields in replay(records).sums.values()] == [0, 0]


def test_a_stale_snapshot_counts_though_a_forget_record_was_read_after_newer_ones_of_another_partition() -> None:
    """The newest snapshot of part 0 is from another partition, so the stale one adds what that one lacks."""
    life = new_ulid(0)

    def snapshot(part: int, seq: int, *names: str) -> bytes:
        metrics: list[record.Metric] = [record.Counter(name=name, count=4) for name in names]
        header: dict[str, Any] = {"app": "a", "life": life, "part": part, "seq": seq, "every_ms": 1000}
        return record.encode(record.Snapshot(**header, ts=0, final=False, metrics=metrics))

    values = [(1, snapshot(0, 3, "n")), (0, snapshot(1, 1)), (0, Forget(metric="n").value()), (0, snapshot(0, 2, "m"))]
    offsets, records = Counter[int](), []
    for partition, value in values:
        records.append(TopicRecord(b"i", value, 1000, partition, offsets[partition]))
        offsets[partition] += 1
    check(records, [{0: 0, 1: 1}, dict(offsets)])
    assert sorted(fields["count"] for fields in replay(records).sums.values()) == [0, 4]


@pytest.mark.parametrize("first", [{0: 1, 1: 0}, {0: 0, 1: 2}], ids=["before it was forgotten", "after it was"])
def test_the_events_of_forget_records_do_not_depend_on_which_partition_is_read_first(first: dict[int, int]) -> None:
    """The life of partition 1 is forgotten by its clock. Each partition has a forget record of its metric."""
    header: dict[str, Any] = {"app": "a", "life": new_ulid(0), "part": 0, "seq": 1, "every_ms": 1000}
    value = record.encode(record.Snapshot(**header, ts=0, final=True, metrics=[record.Counter(name="n", count=4)]))
    forget, at = Forget(metric="n").value(), 2 * FORGET_AFTER_MS
    records = [
        TopicRecord(b"i", value, 1000, 1, 0),
        TopicRecord(CLOCK_KEY, clock_value(at), at, 1, 1),
        TopicRecord(b"i", forget, at, 0, 0),
        TopicRecord(b"i", forget, at + 1, 1, 2),
    ]
    tables = new_tables(records, UNLIMITED)
    take([first, {0: 1, 1: 3}], tables, random.Random(0), broken=0)
    require_equal(tables, replay(records, **UNLIMITED))
    assert [fields["count"] for fields in tables.sums.values()] == [0]


@examples(25)
@given(schedules, step_sizes, st.integers(1, 3))
def test_a_step_from_the_same_state_gives_the_same(schedule: list[int], sizes: list[int], shards: int) -> None:
    """It publishes the same records, and the next state has the same bytes."""
    records = play(schedule, shards)
    tables = new_tables(records, RULES, shards)
    for ends in divide(records, sizes):
        repeated = copy.deepcopy(tables)
        tables.step(ends)
        repeated.step(ends)
        assert repeated.published == tables.published
        for store, other in zip(tables.stores, repeated.stores, strict=True):
            assert store.entries == other.entries  # each head has a token of its own


# Tables that begin again.


@examples(80)
@given(few_or_many, step_sizes, st.integers(1, 4), chances)
def test_a_table_that_begins_again_equals_the_replay(
    schedule: list[int], sizes: list[int], shards: int, chance: random.Random
) -> None:
    """From its state or its rows, however old they are. Dead letters and events are published once."""
    records = play(schedule, shards)
    tables = new_tables(records, UNLIMITED, shards, chance)
    take(divide(records, sizes), tables, chance, broken=0.3)
    require_equal(tables, replay(records, shards=shards, **UNLIMITED))


# Clocks that jump.


@examples(80)
@given(few_or_many, jumps, step_sizes, st.integers(1, 4), chances)
def test_no_count_depends_on_clocks_settings_steps_shards_or_restarts(
    schedule: list[int], hours: list[int], sizes: list[int], shards: int, chance: random.Random
) -> None:
    """Partitions are read late, and the table begins again from its state or its rows. A life is never forgotten."""
    records = jump(play(schedule, shards), hours)
    outcomes = []
    for forget_after_ms in (5 * DAY_MS, 365 * DAY_MS):
        rules = UNLIMITED | {"forget_after_ms": forget_after_ms}
        tables = new_tables(records, rules, shards, chance)
        take(divide(records, sizes, chance), tables, chance, broken=chance.choice([0, 0.2]))
        require_equal(tables, replay(records, shards=shards, **rules))
        outcomes.append((lasting(tables.all_sums()), tables.dead))
    assert outcomes[0] == outcomes[1]


@examples(80)
@given(few_or_many, jumps, step_sizes, st.integers(2, 4), chances)
def test_every_division_into_steps_and_shards_gives_the_same(
    schedule: list[int], hours: list[int], sizes: list[int], shards: int, chance: random.Random
) -> None:
    """Sums, living lives, dead letters, events and stale records are the same in one step as in many."""
    records = jump(play(schedule, shards=0), hours)
    outcomes = []
    for number, steps in ((1, divide(records, [len(records) or 1])), (shards, divide(records, sizes, chance))):
        tables = new_tables(records, UNLIMITED, number, chance)
        take(steps, tables, chance, broken=0)
        outcomes.append((tables.all_sums(), tables.dead, tables.events, sum(state.stale for state in tables.states)))
    assert outcomes[0] == outcomes[1]
