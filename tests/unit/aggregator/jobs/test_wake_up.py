"""The wake-ups of shards that have no records: when they are due, and their delivery without a broker."""

from __future__ import annotations

import logging
import time

import pytest

from tallystream_aggregator.jobs.aggregate.wake_up import GRACE_MS, INSTANCE, REPEAT_MS, WakeUps, WakeUpTimer, instances
from tallystream_aggregator.table.shards import shard_of


class Query:
    """A query whose shards are due at the times in `due`. `woken` has (time, shards) of each wake-up."""

    def __init__(self, due: dict[int, int]) -> None:
        self.now_ms = 1_000_000.0
        self.due = due
        self.woken: list[tuple[float, list[int]]] = []
        self.timer = WakeUpTimer(lambda: self.due, lambda: self.now_ms / 1000)

    def times_at(self, now_ms: float) -> list[float]:
        """Poll the timer at a time, and return the times of all wake-ups so far."""
        self.now_ms = now_ms
        if late := self.timer.late():
            self.woken.append((now_ms, late))
        return [at for at, _ in self.woken]


@pytest.mark.parametrize("shards", [1, 2, 5, 64])
def test_every_shard_has_its_own_instance(shards: int) -> None:
    """A shard runs only in batches that have a record of it, so each shard needs its own key."""
    found = instances(shards)
    assert INSTANCE in found.values()
    assert sorted(found) == list(range(shards))
    assert all(shard_of(instance.encode(), shards) == shard for shard, instance in found.items())


def test_a_query_without_living_lives_is_not_woken() -> None:
    """If no life can fall silent, nothing is appended to an idle topic."""
    assert Query({}).times_at(9e12) == []


def test_a_shard_is_woken_once_for_each_due_time() -> None:
    """It is woken `GRACE_MS` after the due time, because another record mostly comes first."""
    query = Query({0: 1_010_000})
    assert query.times_at(1_010_000 + GRACE_MS - 1) == []
    first = 1_010_000 + GRACE_MS
    assert query.times_at(first) == [first]
    assert query.times_at(first + 100) == [first]
    query.due = {0: int(first + 200)}
    assert query.times_at(first + 300) == [first]
    assert query.times_at(first + 200 + GRACE_MS) == [first, first + 200 + GRACE_MS]


def test_only_shards_that_are_due_are_woken() -> None:
    """Two shards are due at once, a third one later. A shard that was just woken is not woken again."""
    query = Query({0: 1_010_000, 1: 9_000_000, 2: 1_010_000, 3: 1_011_000})
    query.times_at(1_010_000 + GRACE_MS)
    query.times_at(1_011_000 + GRACE_MS)
    assert [shards for _, shards in query.woken] == [[0, 2], [3]]


def test_a_shard_that_stays_due_is_woken_again() -> None:
    """It is woken every `REPEAT_MS`: the broker may have been unavailable, or the batch takes long."""
    query = Query({0: 1_010_000})
    assert len(query.times_at(1_020_000)) == 1
    assert len(query.times_at(1_020_000 + REPEAT_MS - 1)) == 1
    assert len(query.times_at(1_020_000 + REPEAT_MS)) == 2


def test_a_shard_is_woken_after_the_clock_was_set_back() -> None:
    """The clock is set back by an hour after a wake-up. The time of that wake-up then means nothing."""
    query = Query({0: 4_000_000})
    later, now = 4_600_000, 1_000_000
    assert query.times_at(later) == [later]
    query.due = {0: 900_000}
    assert query.times_at(now) == [later, now]
    assert query.times_at(now + REPEAT_MS - 1) == [later, now]


def test_a_wake_up_that_the_broker_does_not_accept_is_logged_later(caplog: pytest.LogCaptureFixture) -> None:
    """`send` does not wait for the broker, which is unavailable here. A later `poll` reports the failure."""
    wake_ups = WakeUps({"bootstrap.servers": "127.0.0.1:1"}, shards=2, timeout=0.5)
    wake_ups.send("metrics", 0, [0, 1])
    wake_ups.poll()
    assert _failures(caplog) == []
    deadline = time.monotonic() + 30
    while not (failures := _failures(caplog)) and time.monotonic() < deadline:
        wake_ups.poll()
        time.sleep(0.05)
    assert failures[0].startswith("cannot wake the query; silent lives are found at the next record: ")


def _failures(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [entry.getMessage() for entry in caplog.records if entry.levelno == logging.WARNING and "wake" in entry.msg]
