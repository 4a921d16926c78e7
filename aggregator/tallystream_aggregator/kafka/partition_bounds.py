"""Queries for partitions and their offsets, which retry while a partition has no leader.

A new topic, and any topic of a broker that restarts, has no leader for a while. librdkafka retries most requests
itself, but not these.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import KafkaError, KafkaException

from tallystream.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import Consumer, TopicPartition

Bounds = TypeVar("Bounds")

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


def bounds_of(
    consumer: Consumer,
    partition: TopicPartition,
    *,
    timeout: float,
    clock: Clock = SYSTEM_CLOCK,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[int, int]:
    """Return the first offset and the one after the last. `timeout` is in seconds, for all attempts.

    Raises:
        KafkaException: the broker did not answer in time, has no such topic, or rejects the request.
    """

    def ask(left_s: float) -> tuple[int, int]:
        low, high = consumer.get_watermark_offsets(partition, timeout=left_s)
        return int(low), int(high)

    return _led(ask, timeout, clock, sleep)


def partitions_of(
    consumer: Consumer,
    topic: str,
    *,
    timeout: float,
    clock: Clock = SYSTEM_CLOCK,
    sleep: Callable[[float], None] = time.sleep,
) -> list[int]:
    """Return the numbers of a topic's partitions. `timeout` is in seconds, for all attempts.

    Raises:
        KafkaException: the broker did not answer in time, or has no such topic.
    """

    def ask(left_s: float) -> list[int]:
        found = consumer.list_topics(topic, timeout=left_s).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        return sorted(found.partitions)

    return _led(ask, timeout, clock, sleep)


def at_times(
    consumer: Consumer,
    asked: list[TopicPartition],
    *,
    timeout: float,
    clock: Clock = SYSTEM_CLOCK,
    sleep: Callable[[float], None] = time.sleep,
) -> list[TopicPartition]:
    """Return the offset of the first record appended at or after a time, -1 if there is none. `asked` has epoch ms.

    Raises:
        KafkaException: the broker did not answer in time, has no such topic, or rejects the request.
    """

    def ask(left_s: float) -> list[TopicPartition]:
        found = consumer.offsets_for_times(asked, timeout=left_s)
        for partition in found:
            if partition.error is not None:  # its offset of -1 does not mean that there is no record
                raise KafkaException(partition.error)
        return found

    return _led(ask, timeout, clock, sleep)


def _led(ask: Callable[[float], Bounds], timeout: float, clock: Clock, sleep: Callable[[float], None]) -> Bounds:
    until = clock.monotonic() + timeout
    while True:
        try:
            return ask(max(until - clock.monotonic(), PAUSE_S))
        except KafkaException as error:
            if error.args[0].code() not in LEADERLESS or clock.monotonic() + PAUSE_S >= until:
                raise
            sleep(PAUSE_S)
