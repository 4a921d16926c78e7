"""Bounds and counts that are kept up to date, against a look at all lives at every question."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from support.schedules import BEGIN_MS, RETIRE_AFTER_MS, TopicRecord, cut, cuts, play, schedules
from support.topic import counter
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, Table, TableSettings, lives, pack, unpack
from tallystream_aggregator.table.disk import MemoryChunks
from tallystream_aggregator.table.layouts import metric_count
from tallystream_aggregator.table.lives import LifeCounts
from tallystream_aggregator.table.table import run_batch

SETTINGS = TableSettings(retire_after_ms=RETIRE_AFTER_MS, short_form_every_ms=5_000, max_metrics=8)


class Plain(LifeCounts):
    """One that knows nothing from before: it looks at every life whenever it is asked."""

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
        """Have nothing to do: every question is a look."""

    def may_any_retire(self) -> bool:
        """Have all lives looked at."""
        return True


def new_plain_table() -> Table:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lives, "LifeCounts", Plain)
        return Table(State(), SETTINGS)


def record(written: TopicRecord) -> Record:
    return Record("metrics", written.partition, written.offset, written.timestamp_ms, written.key, written.value)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(schedules, cuts, st.integers(0, 2**32))
def test_a_batch_is_what_a_look_at_all_lives_makes_it(schedule: list[int], sizes: list[int], seed: int) -> None:
    """Changes, states and what is stored of them are the same, batch by batch, over silence and retirement.

    A batch may come when the shard is due, or at another time, have no records, leave some unread, or be followed by a
    restart.
    """
    chance = random.Random(seed)
    chunks = MemoryChunks()
    tested, plain = Table(State(), SETTINGS, chunks), new_plain_table()
    now_ms = 0

    def both(records: list[Record]) -> None:
        waiting = chance.choice([(), (), ("metrics:0",)])
        said, wanted = (run_batch(one, records, now_ms=now_ms, waiting=waiting) for one in (tested, plain))
        assert said == wanted

    for cut_off in cut(play(schedule), sizes):
        records = [record(written) for written in cut_off]
        lag_ms = chance.choice([0, 5, 40, 40, 3_000])
        now_ms = max(now_ms + 1, max(one.timestamp_ms for one in records) + lag_ms)
        both(records)
        while chance.random() < 0.5:
            due_ms = tested.state.due_ms if chance.random() < 0.7 else now_ms + chance.choice([10, 9_000])
            now_ms = max(now_ms + 1, due_ms)
            both([])
        assert pack(tested.state) == pack(plain.state)
        if chance.random() < 0.5:
            assert pack(tested.pop_difference()) == pack(plain.pop_difference())
        tested.disk.flush()
        plain.disk.flush()
        if chance.random() < 0.1:
            tested = Table(unpack(pack(tested.state)), SETTINGS, chunks)
            tested.pop_difference()
            plain.pop_difference()


def test_lives_that_go_on_reporting_are_looked_at_once_in_some_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty instances report once a second, each in a batch of its own: of twenty batches one looks at all lives.

    So it is when nineteen of them have stopped, fallen silent and retired. What has changed is counted once.
    """
    looks, each = [], lives.Lives.__iter__
    monkeypatch.setattr(lives.Lives, "__iter__", lambda known: looks.append(1) or each(known))
    table, life = Table(State(), TableSettings(retire_after_ms=20_000)), new_ulid(BEGIN_MS)
    for number in range(3_000):
        instance, at_ms = number % 20, BEGIN_MS + 50 * number
        if number >= 1_200 and instance:
            continue
        value = {"v": 1, "app": "shop", "life": life, "part": 0, "seq": number + 1, "ts": 0, "every_ms": 1_000}
        value |= {"final": False, "metrics": [counter(number)], "prev": max(at_ms - 1_000, BEGIN_MS)}
        written = Record("metrics", 0, number, at_ms, b"app-%d" % instance, json.dumps(value).encode())
        run_batch(table, [written], now_ms=at_ms + number % 7)
        assert not table._lives.life_counts._changed
    assert (len(table.state.lives), len(table.disk)) == (1, 19)
    assert 4 <= len(looks) <= (1_200 + 90) / 20
