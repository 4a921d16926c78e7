"""The ledger, the topic `metrics-ledger`: which offsets each finished batch covered, and when it ran.

A writer takes its epoch in the ledger before it writes a sum or a row. So a reader that reads the ledger after a record
finds the record's epoch there, or a higher one. If not, no aggregator wrote the record, and it is ignored. Without this
bound, one record with an epoch of 2^62 would make all records of the active writer look like those of a replaced one.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

import msgspec

from tallystream.decoding import json_decoder
from tallystream_aggregator.kafka.producer import ProducerRecord, RecordProducer
from tallystream_aggregator.kafka.reader import read_topic
from tallystream_aggregator.kafka.topic_selection import Offsets
from tallystream_aggregator.versions import version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

log = logging.getLogger(__name__)

QUERY = "aggregate"
"""The name of the aggregator's query in the ledger."""

TAIL = 1000
"""How many rows at the end are read first. The last ones may be late rows of a replaced writer."""


class LedgerRow(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One row. `kind` "opened": a writer took this epoch. "batch": it finished a batch.

    `start` and `end` map topic → partition → the next offset to read, so a batch covers start <= offset < end. The
    first batch of a table has no `start`: the row "opened" before it has one. Nor has the first batch after a gap, if
    the ledger could not be written until Spark had deleted the offsets before that batch. `ts` is the batch's
    processing time in epoch ms. `partial` is true if records had already been deleted when the table began. `checked`
    maps output topic → partition → the offset before which nothing of a replaced writer is left to repair; only the
    first row after a change has it (jobs.aggregate.repair). A row "opened" has the table's number of `shards`, 0 if
    unknown. It also has the tags that the sums do not have, `drop_tags`, or the only ones that they have, `keep_tags`,
    and the settings with which the writer applies records: `forget_after_ms`, `max_app_metrics`, and `otlp`, the topics
    of OTLP metrics. A row "batch" has those among the topics of `end`.
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
    checked: Offsets = {}
    shards: int = 0
    forget_after_ms: int = 0
    max_app_metrics: int = 0
    drop_tags: tuple[str, ...] = ()
    keep_tags: tuple[str, ...] | None = None
    otlp: list[str] = []


_encoder = msgspec.json.Encoder()
_decode = json_decoder(LedgerRow)


def key(row: LedgerRow) -> bytes:
    """Return the row's key, a JSON array of query and batch."""
    return _encoder.encode([row.query, row.batch])


def encode(row: LedgerRow) -> bytes:
    """Return the row's value, JSON that always has `v`."""
    return b'{"v":1,' + _encoder.encode(row)[1:]


def decode(value: bytes) -> LedgerRow:
    """Return the row in `value`.

    Raises:
        msgspec.DecodeError: it is not a row of the ledger.
    """
    return _decode(value)


def rows(values: Iterable[bytes | None]) -> Iterator[LedgerRow]:
    """Yield the rows in `values`. A value that is not a row of the ledger is skipped with a warning."""
    for value in values:
        try:
            row = decode(value or b"")
        except msgspec.DecodeError as error:
            log.warning("a record of the ledger is not a row and is skipped: %s", error)
        else:
            yield row


def read_rows(topic: str, kafka: Mapping[str, str], *, last: int = TAIL, timeout: float = 30.0) -> list[LedgerRow]:
    """Return the rows among the last `last` offsets of the ledger, a topic of one partition, oldest first.

    If the table has no finished batch among them, more are read, up to the whole topic: each failed start writes a row,
    and the last batch may be far before those. `kafka` is a librdkafka configuration with bootstrap.servers; `timeout`
    is in seconds.

    Raises:
        KafkaException: the broker did not answer, or has no such topic.
        TallystreamError: the topic's end was not reached in time.
    """
    while True:
        values = [record.value for record in read_topic(topic, kafka, last=last, timeout=timeout)]
        found = list(rows(value for value in values if value is not None))
        if len(values) < last or any(row.query == QUERY and row.kind == "batch" for row in found):
            return found
        last *= 10


def highest_epoch(found: Iterable[LedgerRow]) -> int | None:
    """Return the highest epoch that a writer has taken, None if there is no row."""
    return max((row.epoch for row in found if row.query == QUERY), default=None)


def otlp_topics(found: Iterable[LedgerRow]) -> list[str] | None:
    """Return the topics that the table's last finished batch read as OTLP metrics, None if there is no batch."""
    batches = [row for row in found if row.query == QUERY and row.kind == "batch"]
    return batches[-1].otlp if batches else None


def finished(found: Iterable[LedgerRow]) -> Offsets:
    """Return the next offset of each partition after the table's last finished batch, or at which the table began."""
    mine = [row for row in found if row.query == QUERY]
    opened = max((number for number, row in enumerate(mine) if row.kind == "opened" and row.start), default=0)
    batches = [row for row in mine[opened:] if row.kind == "batch"]
    start = mine[opened].start if mine and mine[opened].kind == "opened" else {}
    return max(batches, key=lambda row: (row.epoch, row.batch)).end if batches else start


class LedgerWriter:
    """Appends rows to the ledger. Delivery: at least once. A row that is written twice is the same."""

    def __init__(self, topic: str, kafka: Mapping[str, str]) -> None:
        self._topic = topic
        self._producer = RecordProducer(kafka)

    def write(self, rows: Iterable[LedgerRow]) -> None:
        """Append rows, and return when the broker has acknowledged all of them.

        Raises:
            KafkaException: the broker did not acknowledge one of them in time.
        """
        self._producer.deliver(ProducerRecord(self._topic, key(row), encode(row)) for row in rows)


MAX_EPOCH = 2**32
"""More starts than any table has. A higher epoch is from no aggregator, even if the ledger has no rows."""


class Epochs:
    """Caches the highest epoch of the ledger. `ask` reads it, None for a ledger without rows.

    A ledger whose rows retention has deleted allows all epochs up to `MAX_EPOCH`.
    """

    def __init__(self, ask: Callable[[], int | None]) -> None:
        self._ask = ask
        self._known = 0

    def bound(self, epochs: Iterable[int]) -> int:
        """Return the highest epoch that a writer has taken. Records with these `epochs` must have been read before.

        Reads the ledger only if one of them is higher than the highest known epoch. Raises what `ask` raises.
        """
        highest = max(epochs, default=0)
        if highest > self._known:
            found = self._ask()
            if found is None:
                return min(highest, MAX_EPOCH)
            self._known = max(self._known, found)
        return self._known


def epochs_of(ledger_topic: str, kafka: Mapping[str, str], *, timeout: float = 10.0) -> Epochs:
    """Return the epochs of a ledger. `bound` raises what `read_rows` does."""
    return Epochs(lambda: highest_epoch(read_rows(ledger_topic, kafka, timeout=timeout)))


def highest_on(topics: Iterable[str], kafka: Mapping[str, str]) -> int:
    """Return the highest epoch of the records and deletions of topics, 0 if there is none. Reads the whole topics.

    Raises what `kafka.reader.read_topic` does.
    """
    epochs = (
        read.deleted_by[0] if read.value is None else (version_of(read.value) or (0, 0))[0]
        for topic in topics
        for read in read_topic(topic, kafka)
    )
    return max((epoch for epoch in epochs if epoch <= MAX_EPOCH), default=0)
