"""On random schedules the table publishes the sums of verify's replay, however it runs.

It takes steps of any size, in one or several shards, and begins again from its state or its rows. The records are
everything that may be written to a topic, also with broker clocks that jump. test_step_records.py has steps that leave
out superseded records, test_loop_simulation.py the loop around the table.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from support.fuzz import examples
from support.replayed import TopicRecord, lasting, replay
from support.runs import FORGET_AFTER_MS, RULES, UNLIMITED, check, jump, move, new_tables, require_equal, take
from support.schedules import LONG, jumps, play, schedules, short_schedules, step_sizes
from support.tables import divide
from tallystream import record
from tallystream_aggregator.table.records.decode import CLOCK_KEY, Forget, clock_value
from tallystream_aggregator.times import DAY_MS

chances = st.randoms(use_true_random=False)
few_or_many = st.one_of(short_schedules, short_schedules, schedules)


@examples(200)
@example(LONG, [7])
@given(few_or_many, step_sizes | st.just([1_000]))
def test_the_table_equals_the_replay_in_any_steps(schedule: list[int], sizes: list[int]) -> None:
    """Sums of every type, lives, dead letters, events and stale counts are the same, and no count falls."""
    records = play(schedule)
    check(records, divide(records, sizes))


@examples(100)
@example(LONG, [7], 3)
@given(few_or_many, step_sizes, st.integers(2, 5))
def test_no_result_depends_on_shards(schedule: list[int], sizes: list[int], shards: int) -> None:
    """Sums, dead letters, events with their times, and numbers of records equal the replay's."""
    records = play(schedule, shards)
    check(records, divide(records, sizes), shards=shards)


@examples(60)
@example(LONG, [7], random.Random(0))
@given(few_or_many, step_sizes, chances)
def test_the_table_equals_the_replay_while_instances_move(
    schedule: list[int], sizes: list[int], chance: random.Random
) -> None:
    """Each instance has records in several partitions, which are read in any order."""
    records = move(play(schedule), chance)
    check(records, divide(records, sizes, chance))


LIFE = "0" * 26


def snapshot(part: int, seq: int, names: Sequence[str] = (), final: bool = False) -> bytes:
    """Return a snapshot of the life with these counters, and gauges that another one with the same seq may not have."""
    metrics: list[record.Metric] = [record.Counter(name=name, count=seq) for name in names]
    metrics += [record.Gauge(name=name, value=float(final)) for name in names]
    return record.encode(
        record.Snapshot(app="a", life=LIFE, part=part, seq=seq, ts=0, every_ms=1000, final=final, metrics=metrics)
    )


names = st.lists(st.sampled_from("mn"), unique=True)
snapshots = st.builds(snapshot, st.integers(0, 1), st.integers(1, 4), names, st.booleans())
MOVED = [(0, 0, snapshot(1, 2, "m")), (1, 0, snapshot(0, 1))]
"""The newest snapshot of the part 1 is in another partition than that of the part 0, which is the life's."""

removals = st.sampled_from([None, Forget().value(), Forget(life=LIFE).value(), Forget(metric="n").value()])
written = st.tuples(st.integers(0, 1), st.sampled_from([0, 0, 1, 2 * FORGET_AFTER_MS]), snapshots | removals)


@examples(200)
@example([(0, 0, snapshot(0, 1, "m")), (1, 0, snapshot(0, 1, "m", True))], [False] * 7, random.Random(0))
@example([*MOVED, (1, 0, snapshot(1, 1, "n"))], [False] * 7, random.Random(0))
@example([*MOVED, (1, 0, None), (1, 0, snapshot(1, 1, "n"))], [False] * 7, random.Random(0))
@given(st.lists(written, max_size=7), st.lists(st.booleans(), min_size=7, max_size=7), chances)
def test_one_life_in_two_partitions_equals_the_replay(
    records: list[tuple[int, int, bytes | None]], clocks: list[bool], chance: random.Random
) -> None:
    """Few snapshots with few seqs, removals, and clock records that forget the life, which is read in any order."""
    offsets, topic, at = Counter[int](), list[TopicRecord](), 1000
    for (partition, later_ms, value), is_clock in zip(records, clocks, strict=False):
        at += later_ms
        content = (CLOCK_KEY, clock_value(at)) if is_clock else (b"i", value)
        topic.append(TopicRecord(*content, at, partition, offsets[partition]))
        offsets[partition] += 1
    check(topic, divide(topic, [1], chance), UNLIMITED)


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
@example(LONG, [7], 2, random.Random(0))
@example([*[0] * 17, 102, 968, 1054797], [10], 1, random.Random(0))  # a step reads a forget record after newer records
@given(few_or_many, step_sizes, st.integers(1, 4), chances)
def test_a_table_that_begins_again_equals_the_replay(
    schedule: list[int], sizes: list[int], shards: int, chance: random.Random
) -> None:
    """From its state or its rows, however old they are. Dead letters and events are published once."""
    records = play(schedule, shards)
    tables = new_tables(records, UNLIMITED, shards, chance)
    read = take(divide(records, sizes), tables, chance, broken=0.3)
    require_equal(tables, replay(read, shards=shards, **UNLIMITED))


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
