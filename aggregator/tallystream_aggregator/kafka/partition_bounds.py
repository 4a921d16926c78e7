"""Queries for partitions and their offsets, which retry while a partition has no leader.

A new topic, and any topic of a broker that restarts, has no leader for a while. librdkafka retries most requests
itself, but not these.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaError, KafkaException

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Consumer, TopicPartition

Found = TypeVar("Found")

PAUSE_S = 0.1

LEADERLESS = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
    }
)
"""The errors of a broker that is not the leader, or does not yet know the partition's end."""


def bounds_of(consumer: Consumer, partition: TopicPartition, *, timeout: float) -> tuple[int, int]:
    """Return the first offset and the one after the last. `timeout` is in seconds, for all attempts.

    Raises:
        KafkaException: the broker did not answer in time, has no such topic, or rejects the request.
    """

    def query(left_s: float) -> tuple[int, int]:
        low, high = consumer.get_watermark_offsets(partition, timeout=left_s)
        return int(low), int(high)

    return _retry(query, timeout)


def partitions_of(consumer: Consumer, topic: str, *, timeout: float) -> list[int]:
    """Return the numbers of a topic's partitions. `timeout` is in seconds, for all attempts.

    Raises:
        KafkaException: the broker did not answer in time, or has no such topic.
    """

    def query(left_s: float) -> list[int]:
        found = consumer.list_topics(topic, timeout=left_s).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return sorted(found.partitions)

    return _retry(query, timeout)


def _retry(query: Callable[[float], Found], timeout: float) -> Found:
    deadline = time.monotonic() + timeout
    while True:
        try:
            return query(max(deadline - time.monotonic(), PAUSE_S))
        except KafkaException as error:
            if error.args[0].code() not in LEADERLESS or time.monotonic() + PAUSE_S >= deadline:
                raise
            time.sleep(PAUSE_S)
