"""Topics, commits and members of groups on a real broker, for tests of lag."""

from __future__ import annotations

import socket
import struct
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


OFFSET_COMMIT, DELETE_GROUPS = 8, 42
"""Keys of requests in Kafka's protocol."""


def commit_without_group_id(broker: KafkaBroker, topic: str, offset: int) -> None:
    """Commit an offset under the empty group ID, as an old client without a group.id does (OffsetCommit, version 2)."""
    body = _text("") + struct.pack(">i", -1) + _text("") + struct.pack(">qi", -1, 1) + _text(topic)
    answer = _request(broker, OFFSET_COMMIT, 2, body + struct.pack(">iiqh", 1, 0, offset, -1))
    assert answer[-2:] == b"\0\0"


def delete_group_without_id(broker: KafkaBroker) -> None:
    """Delete that group (DeleteGroups, version 0)."""
    assert _request(broker, DELETE_GROUPS, 0, struct.pack(">i", 1) + _text(""))[-2:] == b"\0\0"


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _request(broker: KafkaBroker, key: int, version: int, body: bytes) -> bytes:
    """Send a request of an old version, whose header has no tags, and return the response."""
    host, port = broker.bootstrap_servers.split(":")
    message = struct.pack(">hhi", key, version, 1) + _text("test") + body
    with socket.create_connection((host, int(port)), timeout=30) as connection, connection.makefile("rb") as answers:
        connection.sendall(struct.pack(">i", len(message)) + message)
        (length,) = struct.unpack(">i", answers.read(4))
        return answers.read(length)
