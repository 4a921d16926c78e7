"""The offsets that the demonstration needs: the ends of a topic, and what a group has committed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from tallystream_aggregator.kafka.clients import READING
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.kafka.broker import KafkaBroker

if TYPE_CHECKING:
    from confluent_kafka import Consumer

TIMEOUT_S = 30.0


def end_offsets(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """Return the offset after the last record of each partition, also of one that is not committed yet."""
    broker = KafkaBroker({"bootstrap.servers": bootstrap_servers}, Selection(topic), READING)
    bounds = broker.bounds([Place(topic, number) for number in broker.partitions().get(topic, ())])
    return {place.partition: found.end for place, found in bounds.items()}


def committed_offsets(consumer: Consumer, topic: str, partitions: int = 1) -> dict[int, int]:
    """Return the offset that the consumer's group has committed for each partition, 0 if it has committed none."""
    requested = [TopicPartition(topic, number) for number in range(partitions)]
    return {one.partition: max(one.offset, 0) for one in consumer.committed(requested, timeout=TIMEOUT_S)}
