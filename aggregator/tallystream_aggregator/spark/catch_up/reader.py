"""Read a range of a partition in a Spark task with librdkafka: Spark's own reader takes twice as long."""

from __future__ import annotations

import time
from bisect import bisect_left
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.partition_bounds import bounds_of
from tallystream_aggregator.spark.catch_up.splits import Range
from tallystream_aggregator.table.decode import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Consumer

    from tallystream_aggregator.table.compaction import RawRecord, Span

MAX_POLLED = 1_000
"""The most messages that are read at a time: so many stay in a core's cache until they are compacted."""

_LOST_CODES = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._UNKNOWN_PARTITION}  # noqa: SLF001
_OPTIONS = {
    # The consumer joins no group and commits no offsets.
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_uncommitted",  # as Spark's source; librdkafka has another default
    "fetch.message.max.bytes": 8 << 20,
    "queued.min.messages": 50_000,
    "queued.max.messages.kbytes": 32_768,
    "fetch.queue.backoff.ms": 10,  # pause of fetching when the queue is full; the default is 1000
}


class LostRecordsError(TallystreamError):
    """Records were deleted before they were read."""


class Reading(NamedTuple):
    """How ranges are read.

    `kafka` are librdkafka's options, `group` is the consumer group for authorization. After `max_wait_s` seconds
    without a record, reading fails. With `skip_lost`, deleted records are skipped; otherwise they are an error.
    """

    kafka: Mapping[str, str]
    group: str
    max_wait_s: float = 60.0
    skip_lost: bool = False

    def __repr__(self) -> str:
        return f"<Reading as group {self.group!r}>"  # the options may hold a password


def read_range(reading: Reading, wanted: Range) -> Iterator[list[RawRecord]]:
    """Yield the records of a range in offset order, as lists that are not empty.

    Raises:
        LostRecordsError: records were deleted, without `skip_lost`.
        TallystreamError: the broker sent no records for `max_wait_s` seconds.
        KafkaException: the broker returned another error.
    """
    reset = "earliest" if reading.skip_lost else "error"
    options = {**_OPTIONS, **reading.kafka, "group.id": reading.group, "auto.offset.reset": reset}
    with closing(clients.consumer(options)) as consumer:
        consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.first)])
        yield from _read(consumer, reading, wanted)


def _read(consumer: Consumer, reading: Reading, wanted: Range) -> Iterator[list[RawRecord]]:
    last_read_s, reached, end = time.monotonic(), wanted.first, wanted.end
    while reached < end:
        messages = consumer.consume(MAX_POLLED, timeout=0.05)
        if messages:
            last_read_s = time.monotonic()
        elif time.monotonic() - last_read_s > reading.max_wait_s:
            raise TallystreamError(
                f"topic {wanted.topic}, partition {wanted.partition}: nothing was read for {reading.max_wait_s:g} s, "
                f"with offsets {reached} to {end - 1} to come."
            )
        records = [message for message in messages if message.error() is None]
        offsets = [message.offset() or 0 for message in records]
        read = records[: bisect_left(offsets, end)]
        if offsets:
            reached = offsets[-1] + 1
        if read:
            times = [message.timestamp()[1] for message in read]
            keys, values = [message.key() for message in read], [message.value() for message in read]
            yield list(zip(offsets, times, keys, values, strict=False))
        if len(records) < len(messages):
            for message in messages:
                if reached < end and (error := message.error()) is not None:
                    at = message.offset() or 0
                    end = _end(consumer, error, at, reading, wanted)
                    reached = max(reached, at)


def _end(consumer: Consumer, error: KafkaError, at: int, reading: Reading, wanted: Range) -> int:
    """Return the end of what can be read of the range. The consumer has returned an error instead of a record.

    Raises the error, unless it means that the partition ends at `at` for the broker that sent the records. This may be
    a follower, or a new leader, that lacks the last ones for a while. So the partition's leader is asked for its end.
    """
    if error.code() in _LOST_CODES:
        raise LostRecordsError(f"{_name(wanted)} has no offset {at} any more.")
    if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001 (librdkafka's name for it)
        raise KafkaException(error)
    if at >= wanted.end:
        return wanted.end
    _, high = bounds_of(consumer, TopicPartition(wanted.topic, wanted.partition), timeout=reading.max_wait_s)
    if high < wanted.end and not reading.skip_lost:
        raise LostRecordsError(f"{_name(wanted)} ends at {high}, before {wanted.end}.")
    return min(high, wanted.end)


def _name(wanted: Range) -> str:
    return f"topic {wanted.topic}, partition {wanted.partition},"


class SpanReader:
    """Reads spans of offsets. It is pickled for Spark's workers, so it has no connection."""

    def __init__(self, reading: Reading) -> None:
        # Deleted records are an error here even with `skip_lost`: the batch has read them once.
        self._reading = reading._replace(skip_lost=False)

    def __call__(self, span: Span) -> Iterator[Record]:
        """Yield the records of a span in offset order.

        Raises:
            LostRecordsError: records were deleted.
            TallystreamError: the broker sent no records for `max_wait_s` seconds.
            KafkaException: the broker returned another error.
        """
        wanted = Range(span.topic, span.partition, span.first, span.last + 1)
        for rows in read_range(self._reading, wanted):
            for row in rows:
                yield Record(span.topic, span.partition, *row)
