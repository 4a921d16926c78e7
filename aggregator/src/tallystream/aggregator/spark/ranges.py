"""Read offsets of a partition in a Spark task, by librdkafka: Spark's own reader takes twice as long (0019)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tallystream.aggregator.spark.cutting import Range
    from tallystream.aggregator.table.series import Row

CHUNK = 1_000
"""Messages that are taken at a time: no more than a core has at hand when they are compacted."""

_GONE = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001
_OPTIONS = {
    # It joins no group and commits nothing.
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",  # as Spark's source reads, whose client has another default
    "fetch.message.max.bytes": 8 << 20,
    "queued.min.messages": 50_000,
    "queued.max.messages.kbytes": 32_768,
    "fetch.queue.backoff.ms": 10,  # for this long it fetches nothing when it has enough: a second, unless told
}


class LostRecordsError(TallystreamError):
    """Records that were not read are gone."""


class Reading(NamedTuple):
    """How ranges are read: librdkafka's options, the group whose rights are used, seconds that nothing may come for.

    With `go_on`, what is gone is passed over; else it is an error.
    """

    kafka: Mapping[str, str]
    group: str
    patience_s: float = 60.0
    go_on: bool = False


def read_range(reading: Reading, wanted: Range) -> Iterator[list[Row]]:
    """Yield the records of a range in offset order, some at a time, none of them empty.

    Raises:
        LostRecordsError: some are gone.
        TallystreamError: the broker sent none for too long.
        KafkaException: the broker refused.
    """
    reset = "earliest" if reading.go_on else "error"
    consumer = Consumer({**_OPTIONS, **reading.kafka, "group.id": reading.group, "auto.offset.reset": reset})
    try:
        consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.first)])
        yield from _read(consumer, reading, wanted)
    finally:
        consumer.close()


def _read(consumer: Consumer, reading: Reading, wanted: Range) -> Iterator[list[Row]]:
    heard, reached = time.monotonic(), wanted.first
    while reached < wanted.end:
        messages = consumer.consume(CHUNK, timeout=0.05)
        if messages:
            heard = time.monotonic()
        elif time.monotonic() - heard > reading.patience_s:
            raise TallystreamError(
                f"topic {wanted.topic}, partition {wanted.partition}: nothing was read for {reading.patience_s:g} s, "
                f"with offsets {reached} to {wanted.end - 1} to come."
            )
        rows: list[Row] = []
        for message in messages:
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 (librdkafka's name for it)
                    raise _refusal(error, wanted, reached)
                if (message.offset() or 0) < wanted.end and not reading.go_on:
                    raise LostRecordsError(f"{_name(wanted)} ends at {message.offset()}, before {wanted.end}.")
                reached = wanted.end
                break
            offset = message.offset() or 0
            reached = offset + 1
            if offset >= wanted.end:
                break
            rows.append((offset, message.timestamp()[1], message.key(), message.value()))
        if rows:
            yield rows


def _refusal(error: KafkaError, wanted: Range, reached: int) -> Exception:
    if error.code() in _GONE:
        return LostRecordsError(f"{_name(wanted)} has no offset {reached} any more.")
    return KafkaException(error)


def _name(wanted: Range) -> str:
    return f"topic {wanted.topic}, partition {wanted.partition},"
