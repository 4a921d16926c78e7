"""The numbers and deadlines of lives, which are updated by differences, against a full scan of all lives each time."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.fuzz import examples
from support.schedules import BEGIN_MS, TopicRecord, in_steps, play, schedules, step_sizes
from support.steps import run
from support.topic import counter
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, Table, TableSettings, lives, pack, unpack
from tallystream_aggregator.table.layouts import metric_count
from tallystream_aggregator.table.lives import LifeCounts

SETTINGS = TableSettings(short_form_every_ms=5_000, max_metrics=8)


class FullScan(LifeCounts):
    """Scans all lives in each step."""

    def flush(self) -> None:
        """Count everything."""
        lives = [life for known in self._state.lives.values() for life in known]
        self.lives, self.living = len(lives), sum(life.living for life in lives)
        self.instances = len({life.instance for life in lives if life.living})
        self.rows = sum(metric_count(life) for life in lives)
        dues: dict[str, list[int]] = {}
        for life in lives:
            if life.living:
                dues.setdefault(life.partition, []).append(life.last_seen_ms + 3 * life.every_ms)
        self._next_silence_ms = {partition: min(each) for partition, each in dues.items()}

    def rescan(self) -> None:
        """Do nothing: `flush` visits all lives."""


def new_scanning_table() -> Table:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lives, "LifeCounts", FullScan)
        return Table(State(), SETTINGS)


def record(written: TopicRecord) -> Record:
    return Record("metrics", written.partition, written.offset, written.timestamp_ms, written.key, written.value)


@examples(100)
@given(schedules, step_sizes, st.integers(0, 2**32))
def test_a_step_gives_the_same_as_with_a_full_scan(schedule: list[int], sizes: list[int], seed: int) -> None:
    """What is published, states and stored differences are the same after every step, also when lives fall silent.

    A step may have no records, or be followed by a restart.
    """
    chance = random.Random(seed)
    tested, scanning = Table(State(), SETTINGS), new_scanning_table()

    def both(records: list[Record]) -> None:
        found, wanted = (run(one, records) for one in (tested, scanning))
        assert found == wanted

    for taken in in_steps(play(schedule), sizes):
        both([record(written) for written in taken])
        while chance.random() < 0.3:
            both([])
        assert pack(tested.state) == pack(scanning.state)
        if chance.random() < 0.5:
            assert pack(tested.pop_difference()) == pack(scanning.pop_difference())
        if chance.random() < 0.1:
            tested = Table(unpack(pack(tested.state)), SETTINGS)
            tested.pop_difference()
            scanning.pop_difference()


def test_few_steps_visit_all_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty instances report once a second, each in its own step. At most one of twenty steps visits all lives.

    The same holds after nineteen of the instances have stopped and fallen silent.
    """
    visits, each = [], lives.Lives.__iter__
    monkeypatch.setattr(lives.Lives, "__iter__", lambda known: visits.append(1) or each(known))
    table, life = Table(State(), TableSettings()), new_ulid(BEGIN_MS)
    for number in range(3_000):
        instance, at_ms = number % 20, BEGIN_MS + 50 * number
        if number >= 1_200 and instance:
            continue
        value = {"v": 1, "app": "shop", "life": life, "part": 0, "seq": number + 1, "ts": 0, "every_ms": 1_000}
        value |= {"final": False, "metrics": [counter(number)], "prev": max(at_ms - 1_000, BEGIN_MS)}
        written = Record("metrics", 0, number, at_ms, b"app-%d" % instance, json.dumps(value).encode())
        run(table, [written])
        assert not table._lives.life_counts._changed
    assert 4 <= len(visits) <= (1_200 + 90) / 20
