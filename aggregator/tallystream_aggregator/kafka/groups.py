"""Commits of a query's offsets to its own consumer group, so that lag tools show the query's progress.

Spark keeps its offsets in its checkpoint and commits nothing to Kafka. The group has no members: it only stores
offsets.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.topic_selection import Offsets, by_partition, by_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

TIMEOUT_S = 10.0
"""The time for one request to the brokers."""


class GroupCommitter:
    """Commits the offsets of one consumer group. An offset decreases only in `begin`.

    `kafka` is a librdkafka configuration with bootstrap.servers.
    """

    def __init__(self, kafka: Mapping[str, str], group: str) -> None:
        self._group = group
        self._kafka = kafka
        self._committed: dict[tuple[str, int], int] = {}
        self._consumer = clients.consumer(
            {
                **self._kafka,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
            },
            polled=False,
        )

    def commit(self, offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
        """Commit the offsets that are higher than the group's, and return them.

        Raises:
            KafkaException: the commit failed. The next commit includes these offsets.
        """
        wanted = by_partition(offsets)
        unknown = [TopicPartition(topic, p) for topic, p in wanted if (topic, p) not in self._committed]
        if unknown:
            for known in self._consumer.committed(unknown, timeout=TIMEOUT_S):
                self._committed[known.topic, known.partition] = known.offset
        ahead = {at: offset for at, offset in wanted.items() if offset > self._committed[at]}
        if ahead:
            moves = [TopicPartition(topic, p, offset) for (topic, p), offset in ahead.items()]
            self._consumer.commit(offsets=moves, asynchronous=False)
            self._committed.update(ahead)
        return by_topic(ahead)

    def begin(self, offsets: Mapping[str, Mapping[str, int]]) -> None:
        """Commit the offsets at which a new table begins. Those of an earlier table may be higher.

        If this fails, a warning is logged, and the next commit replaces them.
        """
        self._committed.update(dict.fromkeys(by_partition(offsets), -1))
        try:
            self.commit(offsets)
        except KafkaException as error:
            log.warning("offsets of the new table: not committed yet (%s); trying again with its first step", error)

    def keep(self, is_read: Callable[[str, int], bool], *, topic: str) -> Offsets:
        """Remove the offsets of partitions that are not read any more from the group, and return them.

        Such offsets would never move again, so every lag tool would report that the query hangs. Kafka's Python client
        can only delete whole groups, so the other offsets are committed again. If the broker forbids that, a warning
        is logged and nothing changes.

        Args:
            is_read: tells whether a partition of a topic is read.
            topic: any topic that exists.
        """
        admin = clients.admin(self._kafka)
        try:
            # This waits for the group's coordinator. The call below must find one: while it is being elected, as on a
            # broker that has just started, librdkafka 2.16 ends the process with a segmentation fault.
            self._consumer.committed([TopicPartition(topic, 0)], timeout=TIMEOUT_S)
            futures = admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(self._group)], request_timeout=TIMEOUT_S
            )
            found = [at for at in futures[self._group].result().topic_partitions if at.offset >= 0]
            gone = [at for at in found if not is_read(at.topic, at.partition)]
            if gone:
                admin.delete_consumer_groups([self._group], request_timeout=TIMEOUT_S)[self._group].result()
                kept = [at for at in found if at not in gone]
                if kept:
                    self._consumer.commit(offsets=kept, asynchronous=False)
        except KafkaException as error:
            log.warning("offsets of partitions that are not read any more stay in %s: %s", self._group, error)
            return {}
        return by_topic({(at.topic, at.partition): at.offset for at in gone})

    def close(self) -> None:
        """Release the connection. Further calls do nothing."""
        self._consumer.close()
