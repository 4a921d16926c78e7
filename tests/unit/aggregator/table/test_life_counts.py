"""The numbers and deadlines of lives, which are updated by differences, against all lives of the table."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.schedules import TopicRecord, in_steps, play, schedules, step_sizes
from support.steps import run
from support.topic import BEGIN_MS, Topic, counter
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, Table, TableSettings, pack, unpack
from tallystream_aggregator.table.instances import FEW_LIVES
from tallystream_aggregator.table.layouts import Layouts, metric_count
from tallystream_aggregator.table.restore import LatestRows, restore
from tallystream_aggregator.table.rows import LifeRow, ShardRow

SETTINGS = TableSettings(short_form_every_ms=5_000, max_metrics=8)


def record(written: TopicRecord) -> Record:
    return Record("metrics", written.partition, written.offset, written.timestamp_ms, written.key, written.value)


@examples(100)
@given(schedules, step_sizes, st.integers(0, 2**32))
def test_the_numbers_of_a_shard_are_those_of_its_lives(schedule: list[int], sizes: list[int], seed: int) -> None:
    """After each step, also one that follows a restart. No living life is past its deadline.

    The table has the metrics of lives and of forgotten sums, and no others.
    """
    chance = random.Random(seed)
    table = Table(State(), SETTINGS)
    for taken in in_steps(play(schedule), sizes):
        found = run(table, [record(written) for written in taken])
        lives = [life for known in table.state.lives.values() for life in known.values()]
        (row,) = (one.row for one in found.rows if isinstance(one.row, ShardRow))
        assert (row.lives, row.living) == (len(lives), sum(life.living for life in lives))
        assert row.instances == len({life.instance for life in lives if life.living})
        assert row.rows == sum(map(metric_count, lives))
        layouts = Layouts(table.state.metrics)
        used = {number for life in lives for number in life.rows} | table.state.forgotten_sums.keys()
        used |= {n for life in lives for block in life.blocks.values() for n in layouts.layout_for(block).numbers}
        assert table.state.metrics.keys() == used
        assert all(table.state.clocks[life.partition] < life.deadline_ms for life in lives if life.living)
        if chance.random() < 0.1:
            table = Table(unpack(pack(table.state)), SETTINGS)


@pytest.mark.parametrize("stored", [False, True])
def test_a_tombstone_does_the_same_after_a_restart(*, stored: bool) -> None:
    """Its events are in the order of the lives' names. A stale record of a life without rows changes nothing of it."""
    topic, names = Topic(), sorted(new_ulid(BEGIN_MS) for _ in range(FEW_LIVES + 2))
    for name in names:
        topic.snapshot(counter(1), life=name)
    topic.append(b"app-1", None)
    for name, seq in ((names[5], 2), (names[2], 2), (names[7], 1)):
        topic.snapshot(counter(1), life=name, seq=seq)
    if stored:
        topic.table = Table(unpack(pack(topic.table.state)))
    topic.append(b"app-1", None)
    assert [event.life for event in topic.changes.events] == [names[2], names[5]]
    changed = {one.row.life for one in topic.changes.rows if isinstance(one.row, LifeRow)}
    assert changed == {names[2], names[5]}


@pytest.mark.parametrize("stored", [False, True])
def test_a_life_that_returns_after_a_restart_has_its_next_tombstone(*, stored: bool) -> None:
    """Its snapshot is the first record of an instance with many lives."""
    topic, names = Topic(), sorted(new_ulid(BEGIN_MS) for _ in range(FEW_LIVES + 2))
    for name in names:
        topic.snapshot(counter(1), life=name)
    topic.append(b"app-1", None)
    if stored:
        topic.table = Table(unpack(pack(topic.table.state)))
    topic.snapshot(counter(5), life=names[3], seq=2)
    topic.append(b"app-1", None)
    assert (topic.kinds(), topic.sum().count) == (["tombstone"], 0)


@pytest.mark.parametrize("steps", [1, 2])
def test_a_tombstone_of_a_silent_life_without_rows_changes_nothing(steps: int) -> None:
    """Also if the step before has not ended, so that nobody has noticed the silence."""
    topic = Topic().snapshot(every_ms=1000)
    if steps == 2:
        topic.append(b"app-2", None, at=3_000)
        topic.append(b"app-1", None, at=3_000)
    else:
        with topic.one_step():
            topic.append(b"app-2", None, at=3_000)
            topic.append(b"app-1", None, at=3_000)
    assert not [one.row for one in topic.changes.rows if isinstance(one.row, LifeRow)]


def test_a_tombstone_of_lives_without_rows_changes_nothing_after_a_restore_from_rows() -> None:
    """The parts of such lives are known by their seqs."""
    topic, latest = Topic().snapshot(counter(1)), LatestRows()
    topic.append(b"app-1", None)
    for row in topic.changes.rows:
        latest.add(row.key, row.value())
    topic.table = Table(restore(latest).states[0])
    topic.append(b"app-1", None)
    assert not [one.row for one in topic.changes.rows if isinstance(one.row, LifeRow)]
