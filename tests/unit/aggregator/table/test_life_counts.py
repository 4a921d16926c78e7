"""The numbers and deadlines of lives, which are updated by differences, against all lives of the table."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.schedules import in_steps, play, schedules, step_sizes
from support.steps import Topic, records_of, run
from tallystream_aggregator.table import State, Table, TableSettings, lives, metric_sums, pack, unpack
from tallystream_aggregator.table.layouts import Layouts, metric_count
from tallystream_aggregator.table.rows import LifeRow, ShardRow

SETTINGS = TableSettings(short_form_every_ms=5_000, max_metrics=8)


@examples(100)
@given(schedules, step_sizes, st.integers(0, 2**32))
def test_the_numbers_of_a_shard_are_those_of_its_lives(schedule: list[int], sizes: list[int], seed: int) -> None:
    """After each step, also one that follows a restart. No living life is past its deadline.

    The table has the metrics of lives and of forgotten sums, and no others.
    """
    chance = random.Random(seed)
    table = Table(State(), SETTINGS)
    for taken in in_steps(play(schedule), sizes):
        found = run(table, records_of(taken))
        all_lives = [life for known in table.state.lives.values() for life in known.values()]
        (row,) = (one.row for one in found.rows if isinstance(one.row, ShardRow))
        assert (row.lives, row.living) == (len(all_lives), sum(life.living for life in all_lives))
        assert row.instances == len({life.instance for life in all_lives if life.living})
        assert row.rows == sum(map(metric_count, all_lives))
        layouts = Layouts(table.state.metrics)
        used = {number for life in all_lives for number in life.rows} | table.state.forgotten_sums.keys()
        used |= {n for life in all_lives for block in life.blocks.values() for n in layouts.layout_for(block).numbers}
        assert table.state.metrics.keys() == used
        assert all(table.state.clocks[life.partition] < life.deadline_ms for life in all_lives if life.living)
        if chance.random() < 0.1:
            table = Table(unpack(pack(table.state)), SETTINGS)


@examples(40)
@given(schedules, step_sizes, st.integers(0, 2**32))
def test_many_lives_and_many_changes_do_the_same_as_few(schedule: list[int], sizes: list[int], seed: int) -> None:
    """Many lives of an instance are indexed, and of many changed rows some are added to the sums before a step ends.

    Both ways publish the same, also after a restart.
    """
    chance, tables = random.Random(seed), [Table(State(), SETTINGS) for _ in range(2)]
    for taken in in_steps(play(schedule), sizes):
        if chance.random() < 0.1:
            tables = [Table(unpack(pack(table.state)), SETTINGS) for table in tables]
        found = []
        for table, few in zip(tables, (0, 100), strict=True):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(lives, "FEW_LIVES", few)
                patch.setattr(metric_sums, "FEW_LIVES", few)
                patch.setattr(metric_sums, "MAX_WAITING", 1 + few)
                found.append(run(table, records_of(taken)))
        one, other = ({row.key: row.value() for row in each.rows} for each in found)
        assert one == other
        assert found[0]._replace(rows=[]) == found[1]._replace(rows=[])


@pytest.mark.parametrize("final", [False, True])
def test_a_tombstone_of_an_ended_life_without_rows_changes_nothing(*, final: bool) -> None:
    """It ended by its final record, or by an earlier tombstone."""
    topic = Topic().snapshot(final=final)
    if not final:
        topic.append(b"app-1", None)
    topic.append(b"app-1", None)
    assert not [one.row for one in topic.changes.rows if isinstance(one.row, LifeRow)]
