"""On random schedules the table publishes the sums of the oracle, however it runs.

The variants are: live batches, catch-up with compaction, shards, rebuilds after crashes, splits into more shards, and
repair after replaced writers. Two generators make the records: `schedules` has everything that may be written to a
topic, `clock_schedules` has programs and broker clocks that jump. The table is also compared with verify's replay.
"""

from __future__ import annotations

import ast
import copy
import random
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support import oracle, oracle_decode, oracle_numbers
from support.batches import DAY_MS, MODES, Batch, batches_of, divide
from support.clock_schedules import clock_schedules
from support.clock_schedules import play as play_programs
from support.fuzz import examples
from support.runs import (
    FORGET_AFTER_MS,
    UNLIMITED,
    check_live,
    counts,
    is_splittable,
    jump,
    lasting,
    move,
    new_tables,
    on_one_clock,
    random_settings,
    require_equal,
    require_exact,
    run,
    wake_all,
)
from support.schedules import TopicRecord, batch_sizes, play, play_steadily, schedules, short_schedules
from support.tables import Tables, table_settings
from tallystream import record
from tallystream.ulid import new_ulid

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream_aggregator.table import Changes


SMALL = {"short_form_every_ms": 5_000, "max_metrics": 8, "forget_after_ms": FORGET_AFTER_MS}
chances = st.randoms(use_true_random=False)
few_or_many = st.one_of(short_schedules, short_schedules, schedules)


# Live: one writer, one shard.


@examples(200)
@given(few_or_many, batch_sizes | st.just([1_000]))
def test_the_table_equals_the_oracle_and_the_replay_in_any_batches(schedule: list[int], sizes: list[int]) -> None:
    """Sums of every type, lives, dead letters, events and stale counts are the same, and no count falls."""
    records = play(schedule)
    check_live(records, divide(records, sizes))


@examples(60)
@given(few_or_many, batch_sizes, chances)
def test_the_table_equals_the_oracle_and_the_replay_while_instances_move(
    schedule: list[int], sizes: list[int], chance: random.Random
) -> None:
    """Each instance has records in several partitions, which are read in any order."""
    records = move(play(schedule), chance)
    check_live(records, divide(records, sizes, chance))


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
    check_live(records, [Batch({0: 0, 1: 1}, all_read=False), Batch(dict(offsets), all_read=False)])
    assert [fields["count"] for fields in oracle.replay(records).sums.values()] == [0, 0]


@examples(25)
@given(schedules, batch_sizes, st.integers(1, 3))
def test_a_batch_that_runs_again_from_its_checkpoint_gives_the_same(
    schedule: list[int], sizes: list[int], shards: int
) -> None:
    """From the same stored state, a batch that runs twice publishes the same records and stores the same bytes."""
    records = play(schedule, shards)
    tables = new_tables(records, SMALL, shards)
    for batch in divide(records, sizes):
        repeated = copy.deepcopy(tables)
        tables.batch(batch)
        repeated.batch(batch)
        assert repeated.changes == tables.changes
        assert (repeated.rows, repeated.log) == (tables.rows, tables.log)
        for store, other in zip(tables.stores, repeated.stores, strict=True):
            assert store.entries == other.entries  # each head has a token of its own


def test_the_oracle_shares_no_code_with_the_table() -> None:
    """The modules of the oracle import only each other and the standard library."""
    for module in (oracle, oracle_decode, oracle_numbers):
        tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        others = imported - {"support.oracle_decode", "support.oracle_numbers"}
        assert {name.partition(".")[0] for name in others} <= sys.stdlib_module_names


# Catch-up: the table over compacted records.

jumps = st.lists(st.sampled_from([0, 0, 0, 23, 25, 72, -25, -72]), min_size=1, max_size=12)
"""By how many hours the broker's clock is off: each number is for ten records."""


def check_compaction(records: list[TopicRecord], sizes: list[int], segment: int, shards: int) -> Counter[str]:
    """Run a table over all records and one over compacted ones. Compare them after every batch."""
    plain = new_tables(records, SMALL, shards)
    compacted = new_tables(records, SMALL, shards, segment=segment)
    for batch in divide(records, sizes):
        plain.batch(batch)
        compacted.batch(batch)
        assert {n: comparable(one) for n, one in compacted.changes.items()} == {
            n: comparable(one) for n, one in plain.changes.items()
        }
        assert compacted.sums == plain.sums
        assert [msgspec.to_builtins(state, str_keys=True) for state in compacted.states] == [
            msgspec.to_builtins(state, str_keys=True) for state in plain.states
        ]
    return compacted.compaction


def comparable(changes: Changes) -> Any:
    """Return changes without the order of dead letters and events, and rows as bytes."""
    letters = Counter((letter.key(), letter.value()) for letter in changes.dead)
    rows = {row.key: row.value(epoch=1, batch=1) for row in changes.rows}
    sums = {one.metric: one for one in changes.shard_sums}
    return changes.totals, letters, Counter(changes.events), rows, sums


@examples(100)
@given(few_or_many, batch_sizes | st.just([40]), st.integers(2, 100), st.sampled_from([play, play_steadily]), jumps)
@example(list(range(60)), [100], 100, play_steadily, [0])
def test_compaction_changes_no_result(
    schedule: list[int],
    sizes: list[int],
    segment: int,
    play: Callable[[list[int]], list[TopicRecord]],
    hours: list[int],
) -> None:
    """Totals, dead letters, events with their offsets, rows and state are the same, however records are divided."""
    check_compaction(jump(play(schedule), hours), sizes, segment, shards=1)


@examples(25)
@given(few_or_many, batch_sizes | st.just([40]), st.integers(2, 100), jumps)
def test_compaction_changes_no_result_in_shards(
    schedule: list[int], sizes: list[int], segment: int, hours: list[int]
) -> None:
    """Each shard has its own clocks, though the records of all shards are compacted together."""
    check_compaction(jump(play_steadily(schedule), hours), sizes, segment, shards=2)


def test_compaction_drops_many_records_and_expands_few_batches() -> None:
    """So the tests above do compact records and do expand batches."""
    found: Counter[str] = Counter()
    for seed in range(10):
        records = play_steadily(list(range(seed * 1000, seed * 1000 + 60)))
        found += check_compaction(records, [100], 100, shards=1)
    assert found["kept"] < 0.85 * found["read"]
    assert 0 < found["expanded"] < found["read"] / 100


# Shards, crashes, rebuilds and splits.


@examples(150)
@given(few_or_many, batch_sizes, st.integers(2, 5))
def test_the_sums_do_not_depend_on_shards(schedule: list[int], sizes: list[int], shards: int) -> None:
    """Counts, sums, min and max, positions, living lives and dead letters equal the oracle's, which has no shards."""
    records = on_one_clock(play(schedule, shards))
    tables = new_tables(records, SMALL, shards)
    for batch in divide(records, sizes):
        tables.batch(batch)
    wanted = oracle.replay([*records, *wake_all(tables, records)], **SMALL)
    require_equal(tables, wanted)
    assert tables.dead == wanted.dead


@examples(220)
@given(few_or_many, batch_sizes, st.integers(1, 4), st.booleans(), chances)
@example([0, 0, 0, 0, 1_000_000], [3], 2, True, random.Random(23))  # the first batch of a split crashes
def test_a_rebuilt_table_equals_the_oracle(
    schedule: list[int], sizes: list[int], shards: int, splits: bool, chance: random.Random
) -> None:
    """This holds whichever rows of a crashed batch were written, and however often the table is rebuilt and split."""
    # A forget record of a metric names the number of shards. Several shards see different clocks of a partition.
    records = play(schedule, 0 if splits else shards)
    records = on_one_clock(records) if splits or shards > 1 else records
    tables, rebuilds = new_tables(records, UNLIMITED, shards, chance), 0
    for batch in divide(records, sizes):
        while tables.has_read and rebuilds < 3 and chance.random() < 0.3:
            rebuilds += 1
            if chance.random() < 0.6:
                tables.batch(batch, written=chance)
            more = chance.choice([0, 1, 2]) if splits else 0
            tables.rebuild(more, behind=chance.random() < 0.2)
        tables.batch(batch)
    require_equal(tables, oracle.replay([*records, *wake_all(tables, records)], **UNLIMITED))


# Programs, and clocks that jump.


@pytest.mark.parametrize("broken", [0, 0.2])
@pytest.mark.parametrize("mode", MODES)
@examples(12)
@given(clock_schedules, st.integers(1, 4), chances)
def test_no_count_depends_on_clocks_settings_batches_shards_or_crashes(
    mode: str, broken: float, schedule: list[int], shards: int, chance: random.Random
) -> None:
    """Batches crash after some of their rows, other writers take over, checkpoints are lost, and tables are split."""
    check_programs(schedule, mode, shards, chance, broken)


def check_programs(schedule: list[int], mode: str, shards: int, chance: random.Random, broken: float) -> None:
    played = play_programs(schedule, shards)
    tables = Tables(played.records, random_settings(played, chance), shards, chance)
    run(batches_of(played, mode, chance), tables, chance, broken, splits=is_splittable(played))
    require_exact(played, tables)
    if not broken:
        assert set(tables.dead) == played.refused


def test_a_life_falls_silent_in_a_shard_that_lost_earlier_clocks() -> None:
    """Two batches crashed after a split, so no row of a shard has its clocks. The rows of lives have their times."""
    schedule = [2059, 6300932, 457, 1022, 1189, 1, 1, 1, 1, 15927147, 1703758, 4160, 6087, 0]
    check_programs(schedule, "live", 1, random.Random(244), broken=0.2)


@examples(12)
@given(clock_schedules, st.integers(1, 4), chances)
def test_every_division_into_batches_and_shards_gives_the_same(
    schedule: list[int], shards: int, chance: random.Random
) -> None:
    """Sums and dead letters are the same. If no instance moves, so are events and the number of stale records.

    No life is forgotten here. When a life is forgotten depends on batches, and then a new life is no restart event.
    """
    played = play_programs(schedule, shards)
    outcomes = []
    for mode in chance.sample(MODES, 2):
        number = chance.choice([1, shards]) if is_splittable(played) else shards
        tables = Tables(played.records, table_settings(forget_after_ms=365 * DAY_MS), number, chance)
        run(batches_of(played, mode, chance), tables, chance, broken=0, splits=False)
        # The time of an event is its shard's clock.
        events = Counter((kind, app, instance, life, detail) for kind, app, instance, life, _, detail in tables.events)
        ordered = (events, sum(state.stale for state in tables.states))
        is_ordered = is_splittable(played) and "partitions" not in played.features
        outcomes.append((lasting(tables.sums), tables.dead, ordered if is_ordered else None))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("mode", MODES)
@examples(12)
@given(clock_schedules, st.integers(1, 4), chances)
def test_no_count_depends_on_what_replaced_writers_overwrite(
    mode: str, schedule: list[int], shards: int, chance: random.Random
) -> None:
    """The table has published the overwritten keys again. Compaction of the topic makes no difference either."""
    played = play_programs(schedule, shards)
    tables = Tables(played.records, random_settings(played, chance), shards, chance)
    batches = batches_of(played, mode, chance)
    for batch in batches:
        if not tables.batches or chance.random() < 0.7:
            tables.batch(batch)
            continue
        tables.take_over()
        tables.batch(batch, republish=tables.overwrite(chance))
        if chance.random() < 0.5:
            tables.rebuild()
    tables.batch(batches[-1])  # to publish a table that was rebuilt last
    require_exact(played, tables)


@examples(12)
@given(clock_schedules, chances)
def test_living_lives_of_a_backlog_are_those_of_its_partitions_clocks(
    schedule: list[int], chance: random.Random
) -> None:
    """One batch reads a backlog. Its gauges, rates and numbers of lives equal the oracle's."""
    played = play_programs(schedule)
    tables = Tables(played.records, random_settings(played, chance))
    tables.batch(batches_of(played, "one batch", chance)[0])
    require_equal(tables, oracle.replay(played.records, forget_after_ms=tables.settings.forget_after_ms))


def test_the_oracle_and_the_programs_agree_on_every_schedule() -> None:
    """They are independent: the oracle reads the topic, the programs compare the acknowledged append times."""
    features: set[str] = set()
    refused = 0
    for seed in range(150):
        chance = random.Random(seed)
        played = play_programs([chance.randrange(2**32) for _ in range(chance.randint(10, 90))])
        wanted = oracle.replay(played.records)
        assert counts(wanted.sums) == {key: count for key, count in played.counted.items() if count}, seed
        assert set(wanted.dead) == played.refused, seed
        features |= played.features
        refused += len(played.refused)
    assert features == {"jumps", "partitions", "copies", "outages", "days"}
    assert refused > 100
