"""The offsets that the demonstration needs: the ends of a topic, and what a group has committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from tallystream_aggregator.kafka.partition_bounds import bounds_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer

TIMEOUT_S = 30.0


def end_offsets(consumer: Consumer, topic: str, partitions: int = 1) -> dict[int, int]:
    """Return the offset after the last record of each partition."""
    return {
        number: bounds_of(consumer, TopicPartition(topic, number), timeout=TIMEOUT_S)[1] for number in range(partitions)
    }


def committed_offsets(consumer: Consumer, topic: str, partitions: int = 1) -> dict[int, int]:
    """Return the offset that the consumer's group has committed for each partition, 0 if it has committed none."""
    requested = [TopicPartition(topic, number) for number in range(partitions)]
    return {one.partition: max(one.offset, 0) for one in consumer.committed(requested, timeout=TIMEOUT_S)}
