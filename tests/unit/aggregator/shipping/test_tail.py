"""Reading on and on from positions, on a simulated broker: topics that come, go, and are created again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.simulation.direct import TOPICS, Direct
from tallystream_aggregator.shipping import tail
from tallystream_aggregator.shipping.tail import Tail
from tallystream_aggregator.stream.broker import BrokerError, Place

if TYPE_CHECKING:
    from tallystream_aggregator.stream.broker import Positions

AGG, EVENTS = Place(TOPICS.agg, 0), Place(TOPICS.events, 0)


class Bench:
    """A tail of two topics. `restarted` has the positions of those that are read from their beginning."""

    def __init__(self) -> None:
        self.direct = Direct()
        self.restarted: list[Positions] = []
        self.places = [AGG, EVENTS]
        self.tail = Tail(self.direct.broker, lambda: self.places, self.restarted.append)

    def append(self, place: Place, *values: bytes) -> None:
        """Append records."""
        for value in values:
            self.direct.cluster.append(place, b"k", value)

    def read(self, limit: int = 100) -> list[tuple[str, int, bytes | None]]:
        """Return topic, offset and value of what is read."""
        return [(one.topic, one.offset, one.value) for one in self.tail.read(limit, 0.1)]


@pytest.fixture
def bench() -> Bench:
    """A tail of two topics that were read."""
    made = Bench()
    made.append(AGG, b"0", b"1", b"2")
    made.append(EVENTS, b"e")
    made.tail.begin({AGG: 1})
    made.tail.ask()
    return made


def test_each_partition_is_read_from_its_position(bench: Bench) -> None:
    """One without a position is read from its beginning. The positions are those after what was read."""
    assert bench.restarted == [{EVENTS: 0}]
    assert sorted(bench.read()) == [(AGG.topic, 1, b"1"), (AGG.topic, 2, b"2"), (EVENTS.topic, 0, b"e")]
    assert bench.tail.positions == {AGG: 3, EVENTS: 1}
    assert bench.read() == []
    bench.append(AGG, b"3")
    assert bench.read() == [(AGG.topic, 3, b"3")]


def test_a_topic_that_was_created_again_is_read_from_its_beginning(bench: Bench) -> None:
    """It may be longer than the old one. The others go on, also while it does not exist."""
    bench.read()
    bench.direct.cluster.delete(AGG.topic)
    bench.places = [EVENTS]
    bench.tail.ask()
    bench.append(EVENTS, b"f")
    assert bench.read() == [(EVENTS.topic, 1, b"f")]
    bench.direct.cluster.create(AGG.topic, 1)
    bench.append(AGG, b"a", b"b", b"c", b"d", b"e")
    bench.places = [AGG, EVENTS]
    bench.tail.ask()
    assert bench.restarted[1:] == [{AGG: 0}]
    assert [offset for _, offset, _ in bench.read()] == [0, 1, 2, 3, 4]


def test_a_topic_that_a_broker_does_not_know_for_a_moment_goes_on(bench: Bench) -> None:
    """As after a restart of the broker. Nothing is read again."""
    bench.read()
    bench.places = [EVENTS]
    bench.tail.ask()
    bench.append(AGG, b"3")
    assert bench.read() == []
    bench.places = [AGG, EVENTS]
    bench.tail.ask()
    assert bench.read() == [(AGG.topic, 3, b"3")]
    assert len(bench.restarted) == 1


def test_records_that_are_gone_are_left_out(bench: Bench) -> None:
    """They were deleted before they were read, or the end was cut off."""
    agg = bench.direct.cluster.partition(AGG)
    agg.delete_before(2)
    bench.tail.ask()
    assert bench.restarted[1:] == [{AGG: 2}]
    assert (AGG.topic, 2, b"2") in bench.read()
    agg.truncate(2)
    bench.tail.ask()
    assert bench.restarted[2:] == [{AGG: 2}]


def test_an_error_in_the_middle_of_a_read_loses_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read before it is read again."""
    monkeypatch.setattr(tail, "READ_AT_ONCE", 1)
    fails = [False, True]

    def fail(what: str) -> None:
        if what == "read" and fails and fails.pop(0):
            raise BrokerError("no answer.")

    bench.direct.fail = fail
    with pytest.raises(BrokerError):
        bench.read()
    assert bench.tail.positions == {AGG: 1, EVENTS: 0}
    bench.direct.fail = lambda _: None
    bench.tail.ask()
    assert len(bench.read()) == 3


def test_a_read_ends_when_it_has_many_bytes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next read has the rest."""
    monkeypatch.setattr(tail, "MAX_BYTES", 2)
    monkeypatch.setattr(tail, "READ_AT_ONCE", 1)
    first = bench.read()
    assert len(first) == 2
    assert len(first + bench.read()) == 3


def test_without_any_partition_there_is_nothing_to_read(bench: Bench) -> None:
    """It is an error, so that nobody takes it for an empty topic."""
    bench.places = []
    with pytest.raises(BrokerError, match="it does not exist, or has no partition yet"):
        bench.tail.ask()
