"""Read records of the topic once more, in a Spark task: those of instances that compaction has to be undone for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tallystream.aggregator.table.inputs import Record
from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Message

    from tallystream.aggregator.table.unfolding import Span

_CHUNK = 10_000


class SpanReader:
    """Reads spans of offsets; `kafka` are librdkafka options. Sent to Spark's workers, so it holds no connection."""

    def __init__(self, kafka: Mapping[str, str], group: str, *, timeout: float = 60.0) -> None:
        self._kafka = dict(kafka)
        self._group = group
        self._timeout = timeout

    def __call__(self, span: Span) -> Iterator[Record]:
        """Yield the records of a span in offset order.

        Raises:
            TallystreamError: some are gone, or the broker sent none in `timeout` seconds.
            KafkaException: the broker refused.
        """
        # It joins no group and commits nothing; what is gone is an error, and never passed over.
        options = {"group.id": self._group, "enable.auto.commit": False, "auto.offset.reset": "error"}
        consumer = Consumer({**self._kafka, **options})
        try:
            consumer.assign([TopicPartition(span.topic, span.partition, span.first)])
            yield from self._read(consumer, span)
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, span: Span) -> Iterator[Record]:
        heard, expected = time.monotonic(), span.first
        while expected <= span.last:
            messages = consumer.consume(_CHUNK, timeout=0.5)
            for message in messages:
                error = message.error()
                if error is not None:
                    raise KafkaException(error)
                record = _record(message, span)
                if record.offset > span.last:
                    return
                yield record
                expected = record.offset + 1
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > self._timeout:
                raise TallystreamError(f"offsets {expected} to {span.last} of {span.topic} can't be read again.")


def _record(message: Message, span: Span) -> Record:
    offset, (_, timestamp_ms) = message.offset() or 0, message.timestamp()
    return Record(span.topic, span.partition, offset, timestamp_ms, message.key(), message.value())
