"""The access to Kafka: reading and writing with librdkafka."""

from __future__ import annotations

import time
from collections.abc import Collection
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message

from tallystream.errors import TallystreamError
from tallystream_aggregator.stream.broker import (
    Bounds,
    BrokerError,
    Chunk,
    FencedError,
    Output,
    Place,
    RejectedError,
    UnavailableError,
)
from tallystream_aggregator.stream.kafka import source as kafka_source
from tallystream_aggregator.stream.kafka import writer as kafka_writer
from tallystream_aggregator.stream.kafka.calls import SLICE_S, Timeouts, error_of
from tallystream_aggregator.stream.kafka.source import KafkaSource
from tallystream_aggregator.stream.kafka.writer import KafkaWriter, open_writer

A, B, OTHER = Place("in", 0), Place("in", 1), Place("other", 0)


def record(place: Place, offset: int) -> Message:
    """Return a record."""
    time = (TIMESTAMP_LOG_APPEND_TIME, offset * 10)
    return Message(topic=place.topic, value=b"v", key=b"k", partition=place.partition, offset=offset, timestamp=time)


class Led(Message):
    """A record of a leader with an epoch. Only librdkafka can set it."""

    epoch = 0

    def leader_epoch(self) -> int:
        """Return it."""
        return self.epoch


def led(place: Place, offset: int, epoch: int) -> Message:
    """Return a record that the leader with this epoch appended."""
    one = Led(topic=place.topic, partition=place.partition, offset=offset, timestamp=(TIMESTAMP_LOG_APPEND_TIME, 0))
    one.epoch = epoch
    return one


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
        assert number > 0
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


def test_the_last_record_of_each_leader_is_marked(consumer: FakeConsumer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records of a partition may come in several runs, each with leaders of its own, or with those before it."""
    monkeypatch.setattr(kafka_source, "MAX_CONSUMED", 3)
    epochs = (1, 1, 1, 1, 2, 2, 4, 5)
    queue = [led(A, offset, epoch) for offset, epoch in enumerate(epochs)]
    for others in ([], [B], [OTHER]):
        source_ = source(A, *others)
        consumer.queue = [*queue[:2], *(led(other, 0, 7) for other in others), *queue[2:]]
        found = {chunk.place: chunk.epoch_ends for chunk in source_.read(100, 0)}
        assert found == {A: [(3, 1), (5, 2), (6, 4), (7, 5)]} | {other: [(0, 7)] for other in others}


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
    assert (polls, now_s > 0.2) == (1, True)
    now_s = 0.0
    assert source(A).read(100, 0) == []
    assert now_s < 0.2


RECORDS = [Output(Place("out", number % 2), b"%d" % number, b"{}") for number in range(4)]
TIMED_OUT = KafkaError(KafkaError._TIMED_OUT, "no answer", False, True)


class FakeProducer:
    """A producer whose calls raise the errors that are queued for them."""

    def __init__(self, **errors: list[Exception]) -> None:
        self.errors = errors
        self.calls: list[str] = []
        self.unsent = 0
        self.records: list[tuple[Any, ...]] = []
        self.timeouts: list[float] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.errors.get(name):
            raise self.errors[name].pop(0)

    def init_transactions(self, timeout: float) -> None:
        """Note the timeout."""
        self.timeouts.append(timeout)
        self._call("init")

    def begin_transaction(self) -> None:
        """Note the call."""
        self._call("begin")

    def produce(self, *record: Any) -> None:
        """Keep the record."""
        self._call("produce")
        self.records.append(record)

    def poll(self, _timeout: float) -> None:
        """Note the call."""
        self.calls.append("poll")

    def commit_transaction(self, timeout: float) -> None:
        """Note the timeout."""
        self.timeouts.append(timeout)
        self._call("commit")

    def flush(self, _timeout: float) -> int:
        """Return how many records are left: one, in the first calls that were asked for."""
        self.calls.append("flush")
        return self.calls.count("flush") <= self.unsent

    def abort_transaction(self, _timeout: float) -> None:
        """Note the call."""
        self._call("abort")


def writer(producer: Any, **timeouts: Any) -> KafkaWriter:
    """Return a writer with this producer."""
    return KafkaWriter(producer, "b:1", Timeouts(**timeouts))


def error(code: int, text: str = "librdkafka's reason.") -> KafkaException:
    """Return an exception of librdkafka."""
    return KafkaException(KafkaError(code, text))


def test_a_call_waits_no_longer_than_the_time_that_is_left() -> None:
    """It waits for a slice at most, so that a signal is handled, and briefly if no time is left."""
    waited: list[float] = []
    for left_s in (60, -1):
        Timeouts().until(time.monotonic() + left_s, waited.append)
    assert waited == [SLICE_S, 0.001]


def test_an_abort_waits_until_its_records_are_sent() -> None:
    """Otherwise librdkafka drops them, and the broker ends nothing in their partitions."""
    producer = FakeProducer()
    producer.unsent = 2
    one = writer(producer)
    one.abort([Place("out", 0), Place("out", 1)])
    assert producer.calls == ["begin", "produce", "produce", "flush", "flush", "flush", "abort", "poll"]
    producer.unsent = 99
    with pytest.raises(UnavailableError, match="the broker acknowledges nothing"):
        writer(producer, commit_s=0.0).abort([Place("out", 0)])
    assert producer.calls[-1] == "flush"


def test_a_full_queue_is_emptied_until_there_is_room() -> None:
    """No record is left out, and none is written twice."""
    producer = FakeProducer(produce=[BufferError(), BufferError()])
    writer(producer).commit(RECORDS)
    assert [record[2] for record in producer.records] == [b"0", b"1", b"2", b"3"]
    assert producer.calls[:6] == ["begin", "produce", "poll", "produce", "poll", "produce"]


@pytest.mark.parametrize(
    ("errors", "raised", "message"),
    [
        ({"commit": [KafkaException(TIMED_OUT)] * 99}, UnavailableError, "no answer"),
        (
            {"produce": [BufferError()] * 99},
            UnavailableError,
            "the queue is full, and the broker acknowledges nothing",
        ),
        ({"produce": [error(KafkaError.MSG_SIZE_TOO_LARGE)]}, BrokerError, "librdkafka's reason"),
        ({"begin": [error(KafkaError._STATE)]}, BrokerError, "librdkafka's reason"),
        # `produce` says only that the transaction has failed; the commit says why.
        (
            {"produce": [error(KafkaError._FATAL)], "commit": [error(KafkaError._FENCED, "fenced")]},
            FencedError,
            "fenced",
        ),
        ({"produce": [error(KafkaError._STATE)], "commit": [error(KafkaError.UNKNOWN, "why")]}, BrokerError, "why"),
        ({"produce": [error(KafkaError._STATE)]}, BrokerError, "librdkafka's reason"),
    ],
)
def test_a_writer_whose_commit_failed_is_not_used_again(
    errors: dict[str, list[Exception]], raised: type[Exception], message: str
) -> None:
    """The error has librdkafka's reason. Nothing reaches the producer in the next call, which fails, too."""
    producer = FakeProducer(**errors)
    one = writer(producer, commit_s=0.0)
    with pytest.raises(raised, match=f"^broker b:1: the transaction failed: {message}.$") as failed:
        one.commit(RECORDS)
    assert type(failed.value) is raised
    assert all(0 < one <= SLICE_S for one in producer.timeouts), "a signal is handled after each of them"
    producer.errors.clear()
    producer.calls.clear()
    with pytest.raises(BrokerError, match=r"a transaction of it has failed\.$"):
        one.commit(RECORDS)
    assert producer.calls == []


def test_a_user_may_tune_a_writer_but_not_its_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options of `--kafka` replace defaults of speed, and nothing on which correctness depends."""
    created: list[dict[str, Any]] = []
    producer = FakeProducer(init=[KafkaException(TIMED_OUT)])
    monkeypatch.setattr(kafka_writer.clients, "producer", lambda options: created.append(dict(options)) or producer)
    mine = {"linger.ms": "5", "transactional.id": "mine", "transaction.timeout.ms": "900000"}
    open_writer({"bootstrap.servers": "b:1", **mine}, "ours", Timeouts())
    assert created[0]["transactional.id"] == "ours"
    assert created[0]["transaction.timeout.ms"] == 30_000
    assert created[0]["linger.ms"] == "5"
    assert producer.calls == ["init", "init"]


def test_a_writer_that_cannot_begin_transactions_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the writer."""
    refused = KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    monkeypatch.setattr(kafka_writer.clients, "producer", lambda _: FakeProducer(init=[refused]))
    with pytest.raises(RejectedError, match="the transactions of ours can't begin"):
        open_writer({"bootstrap.servers": "b:1"}, "ours", Timeouts())


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.PRODUCER_FENCED, FencedError),
        (KafkaError.INVALID_PRODUCER_EPOCH, FencedError),
        (KafkaError._FENCED, FencedError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, RejectedError),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, RejectedError),
        (KafkaError.INVALID_TRANSACTION_TIMEOUT, RejectedError),
        (KafkaError.INVALID_PRODUCER_ID_MAPPING, BrokerError),
        (KafkaError.TRANSACTION_COORDINATOR_FENCED, BrokerError),
        (KafkaError.MSG_SIZE_TOO_LARGE, BrokerError),
        (KafkaError._MSG_TIMED_OUT, UnavailableError),
        (KafkaError.NOT_ENOUGH_REPLICAS, UnavailableError),
    ],
)
def test_each_code_has_one_meaning(code: int, kind: type[TallystreamError]) -> None:
    """A coordinator that is fenced is another broker's matter: a new writer mends it."""
    assert type(error_of("b:1", "it failed", KafkaError(code))) is kind
