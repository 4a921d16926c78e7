"""What `verify` reads from topics: records of transactions, and the newest one of a key."""

from __future__ import annotations

from typing import Any

import pytest

from support.simulation.direct import ROWS, Direct
from tallystream.errors import TallystreamError
from tallystream_aggregator.stream.broker import Bounds, Place
from tallystream_aggregator.verify import job
from tallystream_aggregator.verify.job import committed, settled

DEAD = Place("metrics-dead", 0)


class Partition:
    """A broker with one partition that ends at `end`, for a reader of committed records at each of `stable` in turn."""

    def __init__(self, end: int, stable: list[int]) -> None:
        self._end, self._stable = end, stable

    def bounds(self, places: list[Place]) -> dict[Place, Bounds]:
        """Return the bounds."""
        stable = self._stable.pop(0) if len(self._stable) > 1 else self._stable[0]
        return {place: Bounds(0, stable, self._end) for place in places if place == DEAD}


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "PAUSE_S", 0)


def test_open_transactions_are_waited_for() -> None:
    """A reader does not see what others commit after the first record of an open transaction."""
    broker: Any = Partition(7, [3, 3, 8, 9])
    assert settled(broker, DEAD) == Bounds(0, 8, 7)
    assert settled(broker, Place("metrics-other", 0)) is None


def test_a_transaction_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its dead letters would be missing, and those of others after it."""
    monkeypatch.setattr(job, "MAX_WAIT_S", 0)
    broker: Any = Partition(7, [3])
    with pytest.raises(TallystreamError, match=r"^metrics-dead:0: a transaction has been open for 0 s\.$"):
        settled(broker, DEAD)


def test_all_committed_records_are_read() -> None:
    """Progress is told after each thousand of them."""
    direct = Direct()
    for number in range(2_500):
        direct.cluster.append(ROWS, None, b"%d" % number)
    progress: list[tuple[int, int]] = []
    found = committed(direct.broker, ROWS, lambda done, of: progress.append((done, of)))
    assert [value for *_, value in found] == [b"%d" % number for number in range(2_500)]
    assert progress == [(1_000, 2_500), (2_000, 2_500)]
