"""The numbers and deadlines of lives, which are updated by differences, against all lives of the table."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.fuzz import examples
from support.kept import require_as_new
from support.schedules import LONG, in_steps, play, schedules, step_sizes
from support.steps import Topic, records_of, run
from tallystream_aggregator.table import State, Table, TableSettings, lives, metric_sums, pack, unpack
from tallystream_aggregator.table.rows import LifeRow

SETTINGS = TableSettings(short_form_every_ms=5_000, max_metrics=8)


@examples(40)
@example(LONG, [7], 0)
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
                require_as_new(table)
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
