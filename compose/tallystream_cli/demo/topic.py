"""What the demonstration asks of Kafka: the ends of a topic, and the offsets of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.partition_bounds import bounds_of

if TYPE_CHECKING:
    from confluent_kafka import Consumer

TIMEOUT_S = 30.0


def reader(bootstrap_servers: str, group: str = "demo-reader") -> Consumer:
    """Return a consumer that belongs to no group and commits nothing; `group` is for asking for its offsets."""
    return clients.consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )


def ends(consumer: Consumer, topic: str, partitions: int = 1) -> dict[int, int]:
    """Return the offset after the last record, by partition."""
    return {
        number: bounds_of(consumer, TopicPartition(topic, number), timeout=TIMEOUT_S)[1] for number in range(partitions)
    }


def committed(consumer: Consumer, topic: str, partitions: int = 1) -> dict[int, int]:
    """Return the offsets that the consumer's group has committed, by partition; 0 where there is none."""
    asked = [TopicPartition(topic, number) for number in range(partitions)]
    return {found.partition: max(found.offset, 0) for found in consumer.committed(asked, timeout=TIMEOUT_S)}
