"""Writes transactions with librdkafka's transactional producer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.topics import TABLE_RECORD_BYTES
from tallystream_aggregator.stream.broker import BrokerError, Output
from tallystream_aggregator.stream.kafka.calls import PAUSE_S, SLICE_S, error_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from confluent_kafka import Producer

    from tallystream_aggregator.stream.broker import Place
    from tallystream_aggregator.stream.kafka.calls import Timeouts

_DEFAULTS = {
    "linger.ms": 0,  # a commit sends what is left at once
    "compression.type": "zstd",  # rows of a life are much alike
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 64 * 1024,
}
_FAILED = {KafkaError._STATE, KafkaError._FATAL}  # noqa: SLF001 (librdkafka's names)
"""The errors of `produce` when the transaction has failed before. They do not name the reason; a commit does."""


def open_writer(kafka: Mapping[str, Any], transactional_id: str, timeouts: Timeouts) -> KafkaWriter:
    """Fence all earlier writers with this ID, end their transaction, and return a new writer.

    A transaction that is open takes about a second more: the broker has to end it first.

    Raises:
        FencedError: another writer with this ID was opened at the same time.
        RejectedError: the ID is not allowed, or the time limit of its transactions.
        BrokerError: the broker did not answer in time.
        ConfigError: librdkafka rejects an option.
    """
    fixed = {
        "message.max.bytes": TABLE_RECORD_BYTES,
        "transaction.timeout.ms": int(1000 * timeouts.transaction_s),
        "transactional.id": transactional_id,
    }
    producer = clients.producer({**_DEFAULTS, **kafka, **fixed})
    try:
        timeouts.until(time.monotonic() + timeouts.init_s, producer.init_transactions)
    except KafkaException as error:
        what = f"the transactions of {transactional_id} can't begin"
        raise error_of(kafka["bootstrap.servers"], what, error.args[0]) from error
    return KafkaWriter(producer, kafka["bootstrap.servers"], timeouts)


class KafkaWriter:
    """A `stream.broker.Writer` with a producer whose `init_transactions` has returned."""

    def __init__(self, producer: Producer, servers: str, timeouts: Timeouts) -> None:
        self._producer: Producer | None = producer
        self._servers = servers
        self._timeouts = timeouts

    def commit(self, records: Iterable[Output]) -> None:
        """Write these records in one transaction, as `stream.broker.Writer.commit` describes."""
        self._write(records)

    def abort(self, places: Collection[Place]) -> None:
        """Abort a transaction in these partitions, and what earlier writers have left open there."""
        self._write((Output(place, b"aborted", None) for place in places), abort=True)

    def _write(self, records: Iterable[Output], *, abort: bool = False) -> None:
        # A commit that timed out may still be under way. If the producer began the next transaction, a delayed answer
        # could commit half of it. So it is used again only after a success.
        producer, self._producer = self._producer, None
        if producer is None:
            raise BrokerError(f"broker {self._servers}: the writer is closed, or a transaction of it has failed.")
        deadline = time.monotonic() + self._timeouts.commit_s
        try:
            producer.begin_transaction()
            failed = self._produce(producer, records, deadline)
            if abort:
                self._flush(producer, deadline)  # else the abort would drop the records, and end nothing there
            # It sends what is queued, and raises if the broker has refused a record, so no record needs a callback.
            self._timeouts.until(deadline, producer.abort_transaction if abort else producer.commit_transaction)
            if failed is not None:
                raise failed
        except KafkaException as error:
            raise error_of(self._servers, "the transaction failed", error.args[0]) from error
        producer.poll(0)  # delivers librdkafka's messages
        self._producer = producer

    def close(self) -> None:
        """Release the connections; its destructor takes some milliseconds, also while the broker is away.

        The producer's own `close` would wait for the broker, to abort an open transaction.
        """
        self._producer = None

    def _flush(self, producer: Producer, deadline: float) -> None:
        while producer.flush(SLICE_S):
            self._timeouts.check_stop()
            if time.monotonic() >= deadline:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "the broker acknowledges nothing"))  # noqa: SLF001

    def _produce(self, producer: Producer, records: Iterable[Output], deadline: float) -> KafkaException | None:
        """Queue records. If the transaction has failed meanwhile, return the error that says so."""
        produce = producer.produce
        for (topic, partition), key, value in records:
            while True:
                try:
                    produce(topic, value, key, partition)
                    break
                except BufferError as error:
                    self._timeouts.check_stop()
                    if time.monotonic() >= deadline:
                        reason = "the queue is full, and the broker acknowledges nothing"
                        raise KafkaException(KafkaError(KafkaError._QUEUE_FULL, reason)) from error  # noqa: SLF001
                    producer.poll(PAUSE_S)
                except KafkaException as error:
                    if error.args[0].code() in _FAILED:
                        return error
                    raise
        return None
