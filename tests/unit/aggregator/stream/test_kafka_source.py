"""The source, with a consumer in memory: rows by partition, ends of partitions, and errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message

from tallystream_aggregator.stream.broker import Bounds, BrokerError, Chunk, Place, RejectedError
from tallystream_aggregator.stream.kafka import source as kafka_source
from tallystream_aggregator.stream.kafka.source import KafkaSource

if TYPE_CHECKING:
    from collections.abc import Collection

A, B, OTHER = Place("in", 0), Place("in", 1), Place("other", 0)


def record(place: Place, offset: int) -> Message:
    """Return a record."""
    time = (TIMESTAMP_LOG_APPEND_TIME, offset * 10)
    return Message(topic=place.topic, value=b"v", key=b"k", partition=place.partition, offset=offset, timestamp=time)


def event(place: Place, code: int, offset: int = -1) -> Message:
    """Return an event of a partition."""
    return Message(topic=place.topic, partition=place.partition, offset=offset, error=KafkaError(code))


def end(place: Place, offset: int) -> Message:
    """Return the event that a partition is read up to an offset."""
    return event(place, KafkaError._PARTITION_EOF, offset)


def row(offset: int) -> tuple[int, int, bytes, bytes]:
    """Return the row of a record."""
    return (offset, offset * 10, b"k", b"v")


class FakeConsumer:
    """A consumer whose queue has these messages."""

    def __init__(self) -> None:
        self.queue: list[Message] = []
        self.assigned: list[dict[tuple[str, int], int]] = []

    def assign(self, partitions: list[Any]) -> None:
        """Keep the positions."""
        self.assigned.append({(one.topic, one.partition): one.offset for one in partitions})

    def poll(self, _timeout: float) -> Message | None:
        """Return the first message; an empty queue stays empty."""
        return self.queue.pop(0) if self.queue else None

    def consume(self, number: int, timeout: float) -> list[Message]:
        """Return the next messages."""
        assert timeout == 0
        taken, self.queue = self.queue[:number], self.queue[number:]
        return taken


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> FakeConsumer:
    """The consumer of the source."""
    fake = FakeConsumer()
    monkeypatch.setattr(kafka_source.clients, "consumer", lambda _: fake)
    return fake


def source(*places: Place, bounds: Bounds | None = None) -> KafkaSource:
    """Return a source that reads these partitions from 0, of which all have these bounds."""

    def ask(asked: Collection[Place]) -> dict[Place, Bounds]:
        return {} if bounds is None else dict.fromkeys(asked, bounds)

    one = KafkaSource({"bootstrap.servers": "b:1"}, "g", ask)
    one.assign(dict.fromkeys(places, 0))
    return one


def test_at_most_as_many_records_as_requested_are_returned(
    consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next call returns those that are left."""
    monkeypatch.setattr(kafka_source, "MAX_CONSUMED", 2)
    source_ = source(A)
    consumer.queue = [record(A, offset) for offset in range(8)]
    assert [[(chunk.rows[0][0], chunk.end) for chunk in source_.read(n, 0)] for n in (1, 5, 5, 5)] == [
        [(0, 1)],
        [(1, 6)],
        [(6, 8)],
        [],
    ]


def test_an_end_that_moves_nothing_does_not_end_the_wait(
    consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After it, the first record is waited for as long as requested."""
    source_ = source(A)
    consumer.queue = [end(A, 0)]
    polls: list[float] = []

    def poll(timeout: float) -> Message | None:
        polls.append(timeout)
        return [end(A, 0), record(A, 0)][len(polls) - 1]

    monkeypatch.setattr(consumer, "poll", poll)
    monkeypatch.setattr(consumer, "consume", lambda *_: [])
    assert source_.read(100, 60.0) == [Chunk(A, [row(0)], 1)]
    assert len(polls) == 2
    assert 0 < polls[1] <= polls[0] <= 60


def test_a_partition_that_the_broker_does_not_know_is_no_lost_record(consumer: FakeConsumer) -> None:
    """The broker may have just started."""
    source_ = source(A, bounds=None)
    consumer.queue = [event(A, KafkaError.UNKNOWN_TOPIC_OR_PART)]
    with pytest.raises(BrokerError, match="it has no partition"):
        source_.read(100, 0)


@pytest.mark.parametrize("code", [KafkaError._AUTO_OFFSET_RESET, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_a_broker_that_does_not_know_yet_loses_nothing(consumer: FakeConsumer, code: int) -> None:
    """The leader has the position: the consumer, which has given up, begins there again."""
    source_ = source(A, B, bounds=Bounds(0, 9, 9))
    consumer.queue = [record(A, 0), event(A, code)]
    assert source_.read(100, 0) == [Chunk(A, [row(0)], 1)]
    assert consumer.assigned[-1] == {A: 1, B: 0}


def test_other_errors_are_raised(consumer: FakeConsumer) -> None:
    """What only a person can change has its own class."""
    for code, kind in ((KafkaError.TOPIC_AUTHORIZATION_FAILED, RejectedError), (KafkaError._BAD_MSG, BrokerError)):
        source_ = source(A)
        consumer.queue = [event(A, code)]
        with pytest.raises(kind, match=r"^broker b:1: topic in: records can't be read: "):
            source_.read(100, 0)


def test_a_wait_without_records_asks_librdkafka_once(consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Librdkafka waits for whole milliseconds: to ask it for the rest of one would be a loop that never waits."""
    now_s, polls = 0.0, 0

    def poll(timeout: float) -> None:
        nonlocal now_s, polls
        polls += 1
        now_s += int(timeout * 1000) / 1000 + 1e-6

    monkeypatch.setattr(kafka_source.time, "monotonic", lambda: now_s)
    monkeypatch.setattr(consumer, "poll", poll)
    assert source(A).read(100, 0.2006) == []
    assert polls == 1
