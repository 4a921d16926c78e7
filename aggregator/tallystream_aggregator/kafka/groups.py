"""Commits of a query's offsets to its own consumer group, so that lag tools show the query's progress.

Spark keeps its offsets in its checkpoint and commits nothing to Kafka. The group has no members: it only stores
offsets.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

from tallystream_aggregator.kafka import clients

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)

Offsets = dict[str, dict[str, int]]
"""topic → partition → the next offset to read, as Spark's offset log writes them."""


class GroupCommitter:
    """Commits the offsets of one consumer group; never backwards.

    `options` are further librdkafka settings (security.protocol and the like). `timeout` is in seconds.
    """

    def __init__(
        self, bootstrap_servers: str, group: str, options: Mapping[str, str] | None = None, *, timeout: float = 10.0
    ) -> None:
        self._timeout = timeout
        self._group = group
        self._kafka = {**(options or {}), "bootstrap.servers": bootstrap_servers}
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
        """Commit what is ahead of the group's offsets and return just that.

        Raises:
            KafkaException: the commit failed; nothing is lost: the next commit includes it.
        """
        wanted = {(topic, int(p)): offset for topic, ps in offsets.items() for p, offset in ps.items()}
        unknown = [TopicPartition(topic, p) for topic, p in wanted if (topic, p) not in self._committed]
        if unknown:
            for known in self._consumer.committed(unknown, timeout=self._timeout):
                self._committed[known.topic, known.partition] = known.offset
        ahead = {at: offset for at, offset in wanted.items() if offset > self._committed[at]}
        if ahead:
            moves = [TopicPartition(topic, p, offset) for (topic, p), offset in ahead.items()]
            self._consumer.commit(offsets=moves, asynchronous=False)
            self._committed.update(ahead)
        done: Offsets = {}
        for (topic, p), offset in ahead.items():
            done.setdefault(topic, {})[str(p)] = offset
        return done

    def keep(self, is_read: Callable[[str, int], bool], *, topic: str) -> Offsets:
        """Take out of the group what is not read any more, by topic and partition, and return just that.

        `topic` is any that is there.

        Else its offsets would stand still forever, and every lag tool would say that the query hangs. Kafka's client
        for Python deletes whole groups alone: what is kept is committed again. A broker that does not allow that is
        said and left as it is.
        """
        admin = clients.admin(self._kafka)
        try:
            # This waits for the group's coordinator, which the call below must find: where it is still being chosen, as
            # on a broker that has just begun, librdkafka 2.16 ends the process with a segmentation fault.
            self._consumer.committed([TopicPartition(topic, 0)], timeout=self._timeout)
            asked = admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(self._group)], request_timeout=self._timeout
            )
            found = [at for at in asked[self._group].result().topic_partitions if at.offset >= 0]
            gone = [at for at in found if not is_read(at.topic, at.partition)]
            if gone:
                admin.delete_consumer_groups([self._group], request_timeout=self._timeout)[self._group].result()
                kept = [at for at in found if at not in gone]
                if kept:
                    self._consumer.commit(offsets=kept, asynchronous=False)
        except KafkaException as error:
            log.warning("offsets of what is not read any more stay in %s: %s", self._group, error)
            return {}
        dropped: Offsets = {}
        for at in gone:
            dropped.setdefault(at.topic, {})[str(at.partition)] = at.offset
        return dropped

    def close(self) -> None:
        """Release the connection; safe to call again."""
        self._consumer.close()
