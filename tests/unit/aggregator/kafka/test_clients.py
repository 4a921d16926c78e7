"""The clients of librdkafka, what they produce, and the ledger."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException

from support.malformed import UNDECODABLE
from support.wait import wait_until
from tallystream.errors import ConfigError
from tallystream_aggregator.jobs.aggregate.clock_records import ClockRecords
from tallystream_aggregator.kafka import clients, ledger
from tallystream_aggregator.kafka.ledger import LedgerRow
from tallystream_aggregator.kafka.producer import ProducerRecord, RecordProducer
from tallystream_aggregator.shipping.dead_letters import DeadLetters
from tallystream_aggregator.sinks.base import Point, SinkUnavailableError
from tallystream_aggregator.stream.broker import Place


@pytest.mark.parametrize("create", [clients.consumer, clients.producer, clients.admin])
def test_the_error_of_a_wrong_option_names_it(create: object) -> None:
    """It has librdkafka's message and no value, because a value may be a secret."""
    with pytest.raises(ConfigError) as raised:
        create({"bootstrap.servers": "localhost:1", "group.id": "g", "sasl.passwrd": "secret"})  # type: ignore[operator]
    assert str(raised.value) == (
        "--kafka: ['group.id', 'sasl.passwrd'] can't be used; correct the option that librdkafka names: "
        'No such configuration property: "sasl.passwrd".'
    )


def test_a_client_logs_the_same_message_once_a_minute(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer fails to connect many times. Python's log has one record, and standard error is empty."""
    monkeypatch.setattr(clients.log, "filters", [type(one)() for one in clients.log.filters])
    with socket.socket() as closed, caplog.at_level(logging.INFO):
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        errors: list[object] = []
        consumer = clients.consumer(
            {"bootstrap.servers": address, "group.id": "g", "reconnect.backoff.ms": 1, "error_cb": errors.append}
        )
        try:
            wait_until(lambda: consumer.poll(0.1) or (caplog.records and len(errors) > 3), 30, "it has tried")
        finally:
            consumer.close()
    records = [record for record in caplog.records if record.name == "tallystream.librdkafka"]
    assert [record.getMessage().count("Connection refused") for record in records] == [1]
    assert capfd.readouterr().err == ""


RECORD = ProducerRecord("t", b"k", b"v")
TIMED_OUT = KafkaError(KafkaError._MSG_TIMED_OUT)
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)


class FakeProducer:
    """A producer whose broker does not acknowledge `left` records, and reports `error` for the others."""

    def __init__(self, *, left: int = 0, error: KafkaError | None = None) -> None:
        self._left, self._error = left, error
        self.produced: list[tuple[Any, ...]] = []
        self._waiting: list[Callable[[object, object], None]] = []

    def produce(self, topic: str, value: Any, key: Any, partition: int, *, on_delivery: Any) -> None:
        """Add a record to the queue."""
        self.produced.append((topic, partition, key, value))
        self._waiting.append(on_delivery)

    def poll(self, _timeout: float) -> int:
        """Do nothing."""
        return 0

    def flush(self, _timeout: float) -> int:
        """Report the deliveries, and return how many records are still in the queue."""
        for report in self._waiting[: len(self._waiting) - self._left]:
            report(self._error, None)
        return self._left


def _use(producer: FakeProducer, monkeypatch: pytest.MonkeyPatch) -> FakeProducer:
    monkeypatch.setattr(clients, "producer", lambda _options: producer)
    return producer


def test_a_record_without_an_acknowledgement_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """No delivery report came, and the queue still has the record after the timeout."""
    _use(FakeProducer(left=1), monkeypatch)
    with pytest.raises(KafkaException, match="1 of 1 records"):
        RecordProducer({}).deliver([RECORD])


def test_a_record_that_the_broker_rejects_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error of its delivery report is raised."""
    _use(FakeProducer(error=TOO_LARGE), monkeypatch)
    with pytest.raises(KafkaException) as raised:
        RecordProducer({}).deliver([RECORD])
    assert raised.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_full_queue_delays_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options may make the queue smaller than the number of records. It is emptied, and the record is produced."""
    producer = _use(FakeProducer(), monkeypatch)
    produce = producer.produce
    full = [BufferError("Local: Queue full")]

    def refuse_once(*args: Any, **options: Any) -> None:
        if len(producer.produced) == 2 and full:
            raise full.pop()
        produce(*args, **options)

    monkeypatch.setattr(producer, "produce", refuse_once)
    RecordProducer({}).deliver([RECORD] * 3)
    assert len(producer.produced) == 3


def test_a_queue_that_stays_full_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker acknowledges nothing."""
    producer = _use(FakeProducer(left=1), monkeypatch)
    monkeypatch.setattr(producer, "produce", Mock(side_effect=BufferError("Local: Queue full")))
    with pytest.raises(KafkaException) as raised:
        RecordProducer({}).deliver([RECORD])
    assert raised.value.args[0].code() == KafkaError._QUEUE_FULL


def test_a_clock_record_has_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each given partition gets one. The producer is not idempotent: it would wait for its ID."""
    producer = _use(FakeProducer(), monkeypatch)
    monkeypatch.setattr("tallystream_aggregator.jobs.aggregate.clock_records.time.time", lambda: 1_700_000_000.5)
    ClockRecords({}).send([Place("t", 3), Place("u", 0)])
    value = b'{"v":1,"wall_ms":1700000000500}'
    assert [(topic, partition, key, value_) for topic, partition, key, value_ in producer.produced] == [
        ("t", 3, b"tallystream-clock", value),
        ("u", 0, b"tallystream-clock", value),
    ]


@pytest.mark.parametrize("producer", [FakeProducer(left=1), FakeProducer(error=TIMED_OUT)], ids=["silent", "timed out"])
def test_a_dead_letter_without_an_acknowledgement_is_sent_again(
    producer: FakeProducer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shipper waits as it does for an unavailable store."""
    _use(producer, monkeypatch)
    with pytest.raises(SinkUnavailableError, match="metrics-dead"):
        DeadLetters("metrics-dead", {}, "local:x").send([(Point("n", {}, {"count": 1}, 0), "why")])


def test_dead_letters_have_no_idempotent_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fatal error, as without a permission that is granted later, it would never send again."""
    options: dict[str, Any] = {}
    monkeypatch.setattr(clients, "producer", lambda given: options.update(given) or FakeProducer())
    DeadLetters("metrics-dead", {}, "local:x").send([(Point("n", {}, {"count": 1}, 0), "why")])
    assert "enable.idempotence" not in options


ONE, TWO = (LedgerRow(generation=n, ts=1, shards=1, forget_after_ms=2, max_table_bytes=3) for n in (1, 2))


@pytest.mark.parametrize("value", [None, *UNDECODABLE.values()], ids=["none", *UNDECODABLE])
def test_a_record_that_is_not_a_row_is_skipped_with_a_warning(
    value: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """The rows around it are read."""
    with caplog.at_level(logging.WARNING):
        assert list(ledger.rows([ledger.encode(ONE), value, ledger.encode(TWO)])) == [ONE, TWO]
    assert "a record of the ledger is not a row and is skipped" in caplog.text
