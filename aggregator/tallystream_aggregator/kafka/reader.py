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
    """A record as it was read, with its append time in epoch ms. A null value deletes its key."""

    key: bytes | None
    value: bytes | None
    offset: int
    partition: int = 0
    timestamp_ms: int = 0


def read_topic(
    topic: str, kafka: Mapping[str, str], *, last: int | None = None, timeout: float = 30.0
) -> Iterator[Read]:
    """Yield the records of a topic's partitions up to their ends, only the `last` offsets of each if given.

    The records of a partition come oldest first. Markers and aborted records take offsets, so `last` may be more than
    what is read. `kafka` is a librdkafka configuration with bootstrap.servers.
    `timeout` is the longest wait for the next record, in seconds.

    Raises:
        KafkaException: the broker did not answer, or has no such topic.
        TallystreamError: the topic's end was not reached in time.
    """
    with closing(clients.reading_consumer(kafka)) as consumer:
        bounds = {
            partition: bounds_of(consumer, TopicPartition(topic, partition), timeout=timeout)
            for partition in partitions_of(consumer, topic, timeout=timeout)
        }
        starts = {
            partition: low if last is None else max(low, high - last)
            for partition, (low, high) in bounds.items()
            if low < high
        }
        yield from read_from(consumer, topic, starts, {p: bounds[p][1] for p in starts}, timeout=timeout)


def read_from(
    consumer: Consumer, topic: str, starts: Mapping[int, int], ends: Mapping[int, int], *, timeout: float
) -> Iterator[Read]:
    """Yield the records of each partition with starts <= offset < ends.

    The records may come from a follower, or a new leader, that lacks the last ones for a while. They are waited for.

    The consumer needs `enable.partition.eof`, and `auto.offset.reset=earliest`: retention may delete the records at
    the start. Those that are left are read.

    Raises:
        KafkaException: the broker rejects the request.
        TallystreamError: no record came for `timeout` seconds.
    """
    left = set(starts)
    if not left:
        return
    consumer.assign([TopicPartition(topic, partition, start) for partition, start in starts.items()])
    last_read_s = time.monotonic()
    while left:
        # Not consume(), which waits until it has as many records as requested, or for the whole timeout.
        message = consumer.poll(timeout)
        if message is None:
            raise _late(topic, timeout)
        error, partition, offset = message.error(), message.partition() or 0, message.offset() or 0
        if error is not None and error.code() != error._PARTITION_EOF:  # noqa: SLF001 (librdkafka's name for it)
            raise KafkaException(error)
        if partition not in left:  # a partition that has been read and keeps growing
            if time.monotonic() - last_read_s > timeout:
                raise _late(topic, timeout)
            continue
        if error is not None:
            reached = offset  # the end that this broker knows
        else:
            # While new records keep coming, the event above may never come: it reports a fetch without records.
            reached = offset + 1
            if offset < ends[partition]:
                yield Read(message.key(), message.value(), offset, partition, message.timestamp()[1])
        if reached >= ends[partition]:
            left.discard(partition)
        last_read_s = time.monotonic()
    consumer.unassign()


def _late(topic: str, timeout: float) -> TallystreamError:
    return TallystreamError(f"topic {topic}: its end was not reached in {timeout:g} s.")
