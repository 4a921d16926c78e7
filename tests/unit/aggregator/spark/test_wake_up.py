"""When a query that no records come to is woken: a clock that the test moves, and no broker."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from tallystream_aggregator.jobs.aggregate.wake_up import GRACE_MS, INSTANCE, REPEAT_MS, WakeUpTimer, instances
from tallystream_aggregator.table.shards import shard_of


class Query:
    """What an alarm sees: the time, and when each shard is due. `woken` are the times at which it was woken."""

    def __init__(self) -> None:
        self.now_ms, self.away = 1_000_000.0, False
        self.due: dict[int, int] = {}
        self.woken: list[float] = []
        self.shards: list[list[int]] = []
        self.alarm = WakeUpTimer(lambda: self.due, self._wake, lambda: self.now_ms / 1000)

    def _wake(self, shards: list[int]) -> None:
        self.woken.append(self.now_ms)
        self.shards.append(shards)
        if self.away:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def at(self, now_ms: float) -> list[float]:
        """Look at a time, and return all the times at which the query was woken so far."""
        self.now_ms = now_ms
        self.alarm.poll()
        return self.woken


@pytest.mark.parametrize("shards", [1, 2, 5, 64])
def test_every_shard_has_a_record_that_wakes_it(shards: int) -> None:
    """One for each, as a shard that has no record does not run: after a cut it would write none of its rows."""
    found = instances(shards)
    assert INSTANCE in found.values()
    assert sorted(found) == list(range(shards))
    assert all(shard_of(instance.encode(), shards) == shard for shard, instance in found.items())


def test_a_query_without_a_living_life_is_never_woken() -> None:
    """Nothing is appended to an idle topic where no life could fall silent."""
    query = Query()
    assert query.at(9e12) == []


def test_a_query_is_woken_once_for_each_time_that_passes_unnoticed() -> None:
    """Not before its time and the grace, in which somebody's record mostly comes first; and the next one likewise."""
    query = Query()
    query.due = {0: 1_010_000}
    assert query.at(1_010_000 + GRACE_MS - 1) == []
    first = 1_010_000 + GRACE_MS
    assert query.at(first) == [first]
    assert query.at(first + 100) == [first]
    query.due = {0: int(first + 200)}
    assert query.at(first + 300) == [first]
    assert query.at(first + 200 + GRACE_MS) == [first, first + 200 + GRACE_MS]


def test_every_shard_that_is_due_is_woken_and_no_other() -> None:
    """Two are due at once, one a little later; one that was woken waits, while another becomes due."""
    query = Query()
    query.due = {0: 1_010_000, 1: 9_000_000, 2: 1_010_000, 3: 1_011_000}
    query.at(1_010_000 + GRACE_MS)
    query.at(1_011_000 + GRACE_MS)
    assert query.shards == [[0, 2], [3]]


def test_a_shard_that_stays_due_is_woken_again() -> None:
    """After some seconds, and not several times a second: the batch may be a long one, or the broker away."""
    query = Query()
    query.due, query.away = {0: 1_010_000}, True
    assert len(query.at(1_020_000)) == 1
    assert len(query.at(1_020_000 + REPEAT_MS - 1)) == 1
    query.away = False
    assert len(query.at(1_020_000 + REPEAT_MS)) == 2


def test_a_shard_that_is_due_is_woken_though_the_clock_was_set_back() -> None:
    """By an hour, after it was woken: the time of that tells nothing any more."""
    query = Query()
    query.due = {0: 4_000_000}
    later, now = 4_600_000, 1_000_000
    assert query.at(later) == [later]
    query.due = {0: 900_000}
    assert query.at(now) == [later, now]
    assert query.at(now + REPEAT_MS - 1) == [later, now]
