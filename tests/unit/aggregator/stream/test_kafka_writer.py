"""The writer, with a producer in memory: what it does after an error, and how long it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from tallystream_aggregator.stream.broker import (
    BrokerError,
    FencedError,
    Output,
    Place,
    RejectedError,
    UnavailableError,
)
from tallystream_aggregator.stream.kafka import writer as kafka_writer
from tallystream_aggregator.stream.kafka.calls import Timeouts, error_of
from tallystream_aggregator.stream.kafka.writer import KafkaWriter, open_writer

if TYPE_CHECKING:
    from tallystream.errors import TallystreamError

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
