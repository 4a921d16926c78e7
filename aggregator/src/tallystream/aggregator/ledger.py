"""The ledger: which offsets each finished batch covered, and when. Rows of the topic `metrics-ledger`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec
from confluent_kafka import KafkaException

from tallystream.aggregator import clients
from tallystream.aggregator.reading import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

QUERY = "aggregate"
"""The name of the aggregator's query in the ledger."""

TAIL = 1000
"""How many rows at the end are read for the highest epoch: a writer that was replaced may still add a few late ones."""

Offsets = dict[str, dict[str, int]]


class LedgerRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One row. `kind` "opened": a writer took this epoch; "batch": it finished a batch.

    `start` and `end` map topic → partition → the next offset to read, so a batch covers start <= offset < end. The
    first batch has no `start`: it began where the row "opened" before it says, which has one where a table began. `ts`
    is the batch's processing time in epoch ms. `partial` is true where the query began after earlier records had
    already been deleted.
    """

    v: int = 1
    kind: Literal["opened", "batch"]
    query: str
    epoch: int
    batch: int = -1
    ts: int
    start: Offsets = {}
    end: Offsets = {}
    partial: bool = False


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(LedgerRow)


def key(row: LedgerRow) -> bytes:
    """Return the row's key: a JSON array of query and batch."""
    return _encoder.encode([row.query, row.batch])


def encode(row: LedgerRow) -> bytes:
    """Return the row's value; `v` is always written."""
    return b'{"v":1,' + _encoder.encode(row)[1:]


def decode(value: bytes) -> LedgerRow:
    """Return the row in `value`.

    Raises:
        msgspec.DecodeError: it is not a row of the ledger.
    """
    return _decoder.decode(value)


def read_tail(topic: str, kafka: Mapping[str, str], *, rows: int = TAIL, timeout: float = 30.0) -> list[bytes]:
    """Return the values at the end of a topic of one partition, oldest first: those of the last `rows` offsets.

    `kafka` is a librdkafka configuration with bootstrap.servers; `timeout` is in seconds.

    Raises:
        KafkaException: the broker did not answer, or has no such topic.
        TallystreamError: the topic's end was not reached in time.
    """
    read = read_topic(topic, kafka, last=rows, timeout=timeout)
    return [record.value for record in read if record.value is not None]


class LedgerWriter:
    """Appends rows to the ledger. Delivery: at least once; a row that is written twice says the same."""

    def __init__(self, topic: str, kafka: Mapping[str, str], *, timeout: float = 10.0) -> None:
        self._topic = topic
        self._timeout = timeout
        self._producer = clients.producer(
            {**kafka, "enable.idempotence": True, "delivery.timeout.ms": int(timeout * 1000)}
        )

    def write(self, rows: Iterable[LedgerRow]) -> None:
        """Append rows and return when the broker has them all.

        Raises:
            KafkaException: the broker did not take one of them in time.
        """
        failures: list[KafkaException] = []

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                failures.append(KafkaException(error))

        for row in rows:
            self._producer.produce(self._topic, key=key(row), value=encode(row), on_delivery=delivered)
        self._producer.flush(self._timeout + 1)
        if failures:
            raise failures[0]
