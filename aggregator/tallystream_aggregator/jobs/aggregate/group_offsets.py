"""Commits of offsets to a consumer group without members, so that lag tools show the progress of the aggregator.

The aggregator reads from positions of its own: the offsets of the group are for people.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import TopicPartition

from tallystream_aggregator.kafka import clients

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_aggregator.stream.broker import Positions


class GroupCommitter:
    """Commits the offsets of one consumer group. `kafka` is a librdkafka configuration with bootstrap.servers.

    Raises:
        ConfigError: librdkafka rejects an option.
    """

    def __init__(self, kafka: Mapping[str, str], group: str) -> None:
        self._committed: Positions = {}
        self._consumer = clients.consumer({**kafka, "group.id": group, "enable.auto.commit": False}, polled=False)

    def commit(self, positions: Positions) -> None:
        """Commit the positions that have changed since the last call.

        Raises:
            KafkaException: the commit failed. The next call commits these positions, too.
        """
        moved = {place: position for place, position in positions.items() if self._committed.get(place) != position}
        if moved:
            offsets = [TopicPartition(*place, position) for place, position in moved.items()]
            self._consumer.commit(offsets=offsets, asynchronous=False)
            self._committed |= moved

    def close(self) -> None:
        """Release the connection. Further calls do nothing."""
        self._consumer.close()
