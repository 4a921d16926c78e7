"""The numbers and deadlines of lives, which are updated by differences, against all lives of the table."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.buckets import buckets
from support.fuzz import examples
from support.kept import require_as_new
from support.schedules import LONG, in_steps, play, schedules, step_sizes
from support.steps import BEGIN_MS, Topic, counter, gauge, records_of, run
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, Table, TableSettings, lives, metric_sums, pack, unpack
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


LIVES = [new_ulid(BEGIN_MS + number) for number in range(3)]
TIMER: dict[str, Any] = {"type": "timer", "name": "t", "sum": 1.0, "min": 1.0, "max": 1.0, "m1_rate": 1.0}
SNAPSHOTS = st.tuples(
    st.integers(0, 2),  # the life
    st.sampled_from(["a", "ab", "ab", "abt", "abt", "abT", "g", "ag", "", None]),  # its metrics, or a tombstone
    st.sampled_from([0, 0, 0, 1_000, 4_000]),  # the time since the last record; a life falls silent after 3 s
    st.booleans(),  # final
    st.booleans(),  # the last record of its step
)
RETURNS = [(0, "a", 0, False, True), (1, "ab", 0, True, True), (0, "a", 0, True, False), (1, "ab", 0, False, True)]
"""One life ends, and the other returns in one step."""

NO_SKETCH = [(0, names, 0, False, True) for names in ("abt", "abt", "abt", "abT", None)]
"""The columns of a timer become a row."""


@examples(200)
@example(RETURNS, 100)
@example(NO_SKETCH, 100)
@given(st.lists(SNAPSHOTS, max_size=10), st.sampled_from([0, 100]))
def test_lives_of_an_instance_that_change_in_one_step_are_counted_as_by_a_new_table(
    drawn: list[tuple[int, str | None, int, bool, bool]], few: int
) -> None:
    """They begin, end, fall silent, return and are removed together, with the same metrics in blocks or in rows."""
    table, at, records = Table(State()), BEGIN_MS, list[Record]()
    for seq, (life, names, later_ms, final, ends_step) in enumerate(drawn, 1):
        at += later_ms
        timer = TIMER | {"count": seq}
        kinds = {"g": gauge(seq), "T": timer, "t": timer | {"sketch": {"scale": 5, "positive": buckets(0, seq)}}}
        metrics = [kinds.get(name) or counter(seq, name) for name in names or ""]
        header = {"app": "a", "life": LIVES[life], "part": 0, "ts": 0, "every_ms": 1000, "final": final, "seq": seq}
        value = None if names is None else json.dumps({**header, "metrics": metrics}).encode()
        records.append(Record("metrics", 0, seq, at, b"i", value))
        if ends_step or seq == len(drawn):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(lives, "FEW_LIVES", few)
                patch.setattr(metric_sums, "FEW_LIVES", few)
                run(table, records)
                require_as_new(table)
            records = []


@pytest.mark.parametrize("final", [False, True])
def test_a_tombstone_of_an_ended_life_without_rows_changes_nothing(*, final: bool) -> None:
    """It ended by its final record, or by an earlier tombstone."""
    topic = Topic().snapshot(final=final)
    if not final:
        topic.append(b"app-1", None)
    topic.append(b"app-1", None)
    assert not [one.row for one in topic.changes.rows if isinstance(one.row, LifeRow)]
