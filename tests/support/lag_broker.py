"""Topics, commits and members of groups on a real broker, for tests of lag."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from support.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka.admin import AdminClient

    from tallystream_cli.servers.broker import KafkaBroker


def fill(broker: KafkaBroker, admin: AdminClient, topic: str, *, partitions: int, records: int) -> None:
    """Create a topic with `records` records in each partition."""
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for partition in range(partitions):
        for number in range(records):
            producer.produce(topic, str(number), partition=partition)
    assert producer.flush(30) == 0


def commit(admin: AdminClient, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Commit offsets for a group without members, as the aggregator does."""
    wanted = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]

    def is_committed() -> bool:
        (future,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, wanted)]).values()
        return all(one.error is None for one in future.result(30).topic_partitions)

    wait_until(is_committed, 60, "the coordinator has loaded")


@contextmanager
def member(broker: KafkaBroker, group: str, topic: str) -> Iterator[Consumer]:
    """Yield a consumer that has its partitions and does not commit by itself."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        yield consumer
    finally:
        consumer.close()
