"""Commit a query's offsets to a consumer group of its own, so that every lag tool sees how far it is.

Spark keeps its offsets in its checkpoint and tells Kafka nothing. The group has no members: it is only a name under
which offsets are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

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
        self._committed: dict[tuple[str, int], int] = {}
        self._consumer = Consumer(
            {
                **(options or {}),
                "bootstrap.servers": bootstrap_servers,
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
            }
        )

    def commit(self, offsets: Mapping[str, Mapping[str, int]]) -> Offsets:
        """Commit what is ahead of the group's offsets and return just that.

        Raises:
            KafkaException: the broker did not take it; nothing is lost: the next commit says it again.
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

    def close(self) -> None:
        """Release the connection; safe to call again."""
        self._consumer.close()
