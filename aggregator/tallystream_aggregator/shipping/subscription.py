"""Reads topics as a member of a consumer group: what was read, which partitions are this member's, what is written.

The group gives each partition to one member at a time. With one partition a topic, the second member of a group gets
none: it stands by.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from tallystream.log_throttle import RateLimitFilter
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.stream.broker import BrokerError, Place

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from confluent_kafka import Consumer

log = logging.getLogger(__name__)
log.addFilter(RateLimitFilter())

MAX_BYTES = 4 << 20
"""The bytes after which a read ends. A record of `metrics-table` may have ten thousand metrics."""

ASK_INTERVAL_S = 2.0
"""How often the brokers are asked about the topics, in seconds."""

_DEFAULTS = {
    # After a kill the group waits this long for the member, so the next start does, too. This is the shortest time that
    # brokers allow by default. librdkafka sends the heartbeats in a thread of its own, also while a store is slow.
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_500,
    "max.poll.interval.ms": 1_800_000,  # a slow store may take many minutes for the rows of many instances
    "queued.max.messages.kbytes": 16_384,  # what is fetched and not read yet
    "fetch.queue.backoff.ms": 50,
    "auto.commit.interval.ms": 1_000,  # so much is read again after a crash
}
_FIXED = {
    # librdkafka commits what `written` stores, and nothing else: also before it gives partitions back, and at the end.
    "enable.auto.commit": True,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "partition.assignment.strategy": "range",  # all partitions are revoked before they are assigned again
}
_REJECTED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED})


class Record(NamedTuple):
    """A record as it was read."""

    topic: str
    offset: int
    key: bytes | None
    value: bytes | None


class Subscription:
    """A member of the group `group` that reads `topics`. For one thread.

    It begins at the group's offsets. A partition without one is read from its beginning. Kafka deletes the offsets of a
    topic with the topic, so one that was created again is read from its beginning, too. Only committed transactions are
    read. Delivery: at least once. The order within a partition is kept.

    `places` are this member's partitions, None while the group has not decided. `changes` counts the decisions: a
    record that was read before a change must not be written after it, as another member may have written later ones.
    `answered_s` is when the brokers last answered `ask`, by the monotonic clock, or when the group decided.

    Args:
        kafka: librdkafka's options with bootstrap.servers.
        ids: returns the IDs of those of these topics that exist, as `stream.broker.Broker.topic_ids`.

    Raises:
        ConfigError: librdkafka rejects an option.
    """

    def __init__(
        self,
        kafka: Mapping[str, Any],
        group: str,
        topics: Sequence[str],
        ids: Callable[[Collection[str]], dict[str, str]],
        *,
        connect: Callable[[Mapping[str, Any]], Consumer] = clients.consumer,
    ) -> None:
        self._group, self._topics, self._ask_ids = group, list(topics), ids
        self._ids: dict[str, str] = {}
        self.places: frozenset[Place] | None = None
        self.changes = 0
        self.answered_s = self._ask_due_s = 0.0
        self._records: list[Record] = []
        self._bytes = 0
        self._positions: dict[Place, int] = {}
        self._read: dict[Place, int] = {}
        self._paused: frozenset[Place] = frozenset()
        self._is_waiting = False
        self._consumer = connect({**_DEFAULTS, **kafka, **_FIXED, "group.id": group})
        self._consumer.subscribe(
            self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def read(self, limit: int, timeout_s: float) -> list[Record]:
        """Return at most `limit` next records, of about `MAX_BYTES`. Wait up to `timeout_s` seconds for the first one.

        Raises:
            KafkaException: the broker forbids to read, or librdkafka has a fatal error.
        """
        self._resume()
        deadline = time.monotonic() + timeout_s
        while len(self._records) < limit and self._bytes < MAX_BYTES:
            left_s = max(deadline - time.monotonic(), 0.0)
            if not self._poll(0.0 if self._records else left_s) or not (self._records or left_s):
                break
        records, self._records, self._bytes = self._records, [], 0
        self._read = dict(self._positions)
        return records

    def written(self) -> None:
        """Note that what was read last is written. librdkafka commits the positions after it within a second."""
        positions = [TopicPartition(*place, offset) for place, offset in self._read.items()]
        try:
            if positions:
                self._consumer.store_offsets(offsets=positions)
        except KafkaException as error:  # the topic is being deleted
            log.warning("%s: the offsets are not committed yet: %s", self._group, error.args[0].str())

    def wait(self, seconds: float) -> None:
        """Stay a member of the group for some seconds without reading. The next `read` goes on."""
        if not self._is_waiting:
            places = self.places or frozenset()
            self._is_waiting = True
            self._consumer.pause([TopicPartition(*place) for place in places])
            self._paused |= places
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0:
            self._poll(left_s)

    def ask(self) -> bool:
        """Ask the brokers for the IDs of the topics, every `ASK_INTERVAL_S`. Return whether they have answered now.

        A topic that was deleted and created again is read from its beginning: its offsets mean other records. Kafka
        does not tell a consumer. If the new topic is longer than the position, it would go on in the middle.
        """
        now_s = time.monotonic()
        if now_s < self._ask_due_s:
            return False
        self._ask_due_s = now_s + ASK_INTERVAL_S
        try:
            self._begin_again(self._ask_ids(self._topics))
        except (BrokerError, KafkaException) as error:
            log.warning("the topics can't be asked for: %s; trying again", error)
            return False
        self.answered_s = now_s
        return True

    def close(self) -> None:
        """Commit what is written, and leave the group."""
        self._consumer.close()

    def _begin_again(self, ids: dict[str, str]) -> None:
        """Begin again with the topics that have other IDs now."""
        again = {topic for topic, id_ in ids.items() if self._ids.get(topic, id_) != id_}
        for place in sorted(self.places or ()):
            if place.topic in again:
                log.warning("%s was deleted and created again: it is read from its beginning", place.topic)
                # An offset of the old topic may be committed already, or stored for the next commit.
                start = [TopicPartition(*place, 0)]
                self._consumer.store_offsets(offsets=start)
                self._consumer.commit(offsets=start, asynchronous=False)
                self._consumer.seek(TopicPartition(*place, OFFSET_BEGINNING))
                self._positions.pop(place, None)
        if again:
            self._records = [record for record in self._records if record.topic not in again]
            self.changes += 1
        self._ids |= ids

    def _poll(self, timeout_s: float) -> bool:
        """Take one message or event. Return whether there was one."""
        message = self._consumer.poll(timeout_s)
        if message is None:
            return False
        error, place = message.error(), Place(message.topic() or "", message.partition() or 0)
        offset = message.offset() or 0
        if error is None:
            value = message.value()
            self._records.append(Record(place.topic, offset, message.key(), value))
            self._bytes += len(value or b"")
            self._positions[place] = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (librdkafka's name for it)
            self._positions[place] = offset  # markers of transactions are before it
        elif error.fatal() or error.code() in _REJECTED:
            raise KafkaException(error)
        else:
            log.warning("%s; trying again", error.str().rstrip("."))
        return True

    def _resume(self) -> None:
        """Resume what `wait` has paused. A partition stays paused in librdkafka while it is another member's."""
        self._is_waiting = False
        if ours := self._paused & (self.places or frozenset()):
            self._consumer.resume([TopicPartition(*place) for place in ours])
            self._paused -= ours

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._begin(frozenset(Place(one.topic, one.partition) for one in partitions))
        if not partitions:
            log.info("%s: another member of the group has all partitions; standing by", self._group)

    def _on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._begin(None)

    def _on_lost(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        log.warning("%s: the group has excluded this member; joining it again", self._group)
        self._begin(None)

    def _begin(self, places: frozenset[Place] | None) -> None:
        self.places = places
        self.changes += 1
        self.answered_s = self._ask_due_s = time.monotonic()
        self._records, self._bytes = [], 0
        self._positions.clear()
        self._read.clear()
