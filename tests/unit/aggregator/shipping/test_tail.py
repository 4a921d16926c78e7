"""Reading what is published, and a store of only the newest sums."""

from __future__ import annotations

from typing import Any

import pytest

from support import shipper
from support.simulation.direct import TOPICS, Direct
from tallystream_aggregator.shipping import shipper as module
from tallystream_aggregator.shipping import tail
from tallystream_aggregator.shipping.tail import Tail
from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink
from tallystream_aggregator.stream.broker import BrokerError, Place, Positions

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


class Newest(shipper.Bench):
    """A shipper to a sink that listens nowhere."""

    def text(self) -> str:
        """Return what `/metrics` answers."""
        return str(self.sink.metrics().text)


@pytest.fixture
def newest(monkeypatch: pytest.MonkeyPatch) -> Newest:
    """A shipper."""
    return Newest(monkeypatch, PrometheusSink("127.0.0.1", 0))


def test_the_newest_sums_are_shown_when_the_end_is_reached(newest: Newest, monkeypatch: pytest.MonkeyPatch) -> None:
    """No sum is shown before, and the shipper is not ready."""
    monkeypatch.setattr(module, "MAX_RECORDS", 2)
    newest.publish(1, 2, 3)
    reasons: list[str | None] = []
    write = newest.sink.write

    def writing(points: Any) -> Any:
        reasons.append(newest.reason())
        return write(points)

    monkeypatch.setattr(newest.sink, "write", writing)
    assert not newest.step()
    assert reasons == ["waiting for the newest sums"]
    assert newest.text() == "the newest sums are not known yet\n"
    assert newest.reason() == "waiting for the newest sums"
    assert newest.step()
    assert " 3.0\n" in newest.text()
    assert newest.reason() is None
    assert newest.step(6)
    assert " 6.0\n" in newest.text()


def test_the_newest_sums_are_withdrawn_while_the_brokers_do_not_answer(newest: Newest) -> None:
    """Half a minute after they answered last. They are shown again with what was published meanwhile."""
    assert newest.step(1)
    newest.now_s += 28
    assert newest.step(answers=False)
    assert not newest.step(answers=False)
    assert newest.sink.metrics()[::2] == (503, "the newest sums were last known 32 s ago\n")
    assert newest.reason() == "waiting for the newest sums"
    assert newest.step(2)
    assert " 2.0\n" in newest.text()


def test_sums_that_come_faster_than_they_are_read_are_withdrawn(
    newest: Newest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time at which the end was known counts, not the time at which it was reached."""
    assert newest.step()
    newest.publish(1)
    write = newest.sink.write

    def slow(points: Any) -> Any:
        newest.now_s += 31
        return write(points)

    monkeypatch.setattr(newest.sink, "write", slow)
    assert not newest.step()
    assert newest.sink.metrics().status == 503


def test_a_topic_whose_records_are_gone_is_read_from_its_beginning(newest: Newest) -> None:
    """It was created again, and may be longer than the old one, or its beginning or its end was cut off.

    No sum that it does not have is shown any more.
    """
    newest.publish(1, name="gone")
    assert newest.step()
    newest.direct.cluster.delete(AGG.topic)
    assert newest.step()  # for half a minute
    newest.direct.cluster.create(AGG.topic, 1)
    assert newest.step(7, 8)
    assert (" 8.0\n" in newest.text(), "gone" in newest.text()) == (True, False)
    newest.publish(2, 3, 4, name="m")
    agg = newest.direct.cluster.partition(AGG)
    agg.delete_before(3)
    assert newest.step()
    assert (" 4.0\n" in newest.text(), " 8.0\n" in newest.text()) == (True, False)
    agg.truncate(4)
    assert newest.step()
    assert (" 3.0\n" in newest.text(), " 4.0\n" in newest.text()) == (True, False)
