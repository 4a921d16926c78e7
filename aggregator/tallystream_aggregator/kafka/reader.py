"""Reads a topic up to its current end, without a consumer group and without commits."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaException, TopicPartition

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.partition_bounds import bounds_of, partitions_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import Consumer


class Read(NamedTuple):
    """A record as it was read. A null value deletes its key."""

    key: bytes | None
    value: bytes | None
    offset: int
    partition: int = 0


def read_topic(
    topic: str, kafka: Mapping[str, str], *, last: int | None = None, timeout: float = 30.0
) -> Iterator[Read]:
    """Yield the records of a topic's partitions up to their ends, only the `last` offsets of each if given.

    The records of a partition come oldest first. Markers and aborted records take offsets, so `last` may be more than
    what is read. If retention deletes records meanwhile, those that are left are read. `kafka` is a librdkafka
    configuration with bootstrap.servers. `timeout` is the longest wait for the next record, in seconds.

    Raises:
        KafkaException: the broker did not answer, or has no such topic.
        TallystreamError: the topic's end was not reached in time.
    """
    with closing(clients.reading_consumer(kafka)) as consumer:
        starts, ends = [], {}
        for partition in partitions_of(consumer, topic, timeout=timeout):
            low, high = bounds_of(consumer, TopicPartition(topic, partition), timeout=timeout)
            if low < high:
                starts.append(TopicPartition(topic, partition, low if last is None else max(low, high - last)))
                ends[partition] = high
        consumer.assign(starts)
        yield from _read(consumer, topic, ends, timeout)


def _read(consumer: Consumer, topic: str, ends: Mapping[int, int], timeout: float) -> Iterator[Read]:
    """Yield the records of each partition before its end."""
    left, read_s = set(ends), time.monotonic()
    late = TallystreamError(f"topic {topic}: its end was not reached in {timeout:g} s.")
    while left:
        # Not consume(), which waits until it has as many records as requested, or for the whole timeout.
        message = consumer.poll(timeout)
        if message is None:
            raise late
        error, partition, reached = message.error(), message.partition() or 0, message.offset() or 0
        if error is not None and error.code() != error._PARTITION_EOF:  # noqa: SLF001 (librdkafka's name for it)
            raise KafkaException(error)
        if partition not in left:  # a partition that has been read and keeps growing
            if time.monotonic() - read_s > timeout:
                raise late
            continue
        if error is None:
            if reached < ends[partition]:
                yield Read(message.key(), message.value(), reached, partition)
            # While new records keep coming, the event may never come: it reports a fetch without records.
            reached += 1
        # The event has the end that this broker knows. A follower, or a new leader, may lack the last records.
        if reached >= ends[partition]:
            left.discard(partition)
        read_s = time.monotonic()
