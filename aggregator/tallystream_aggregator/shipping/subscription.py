"""Reads topics as a member of a consumer group: what was read, which partitions are this member's, what is committed.

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
from tallystream_aggregator.kafka.partition_bounds import bounds_of
from tallystream_aggregator.kafka.topics import topic_ids

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from confluent_kafka import Consumer
    from confluent_kafka.admin import AdminClient

log = logging.getLogger(__name__)
log.addFilter(RateLimitFilter())

MAX_BYTES = 4 << 20
"""The bytes after which a read ends. A record of `metrics-table` may have ten thousand metrics."""

COMMIT_S = 1.0
"""The shortest interval between two commits in seconds. So much is read again after a crash."""

_DEFAULTS = {
    # After a kill the group waits this long for the member, so the next start does, too. This is the shortest time that
    # brokers allow by default. librdkafka sends the heartbeats in a thread of its own, also while a store is slow.
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 1_500,
    "queued.max.messages.kbytes": 16_384,  # what is fetched and not read yet
    "fetch.queue.backoff.ms": 50,
}
_FIXED = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "partition.assignment.strategy": "range",  # all partitions are revoked before they are assigned again
}
_REJECTED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED})


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int


class Record(NamedTuple):
    """A record as it was read."""

    topic: str
    offset: int
    key: bytes | None
    value: bytes | None
    partition: int = 0


Positions = dict[Place, int]


def _ids(admin: AdminClient, topics: Sequence[str], timeout_s: float) -> dict[str, str]:
    return topic_ids(admin, topics, timeout_s=timeout_s)


class Subscription:
    """A member of the group `group` that reads `topics`. For one thread.

    It begins at the group's offsets. A partition without one is read from its beginning. Kafka deletes the offsets of a
    topic with the topic, so one that was created again is read from its beginning, too. Only committed transactions are
    read. Delivery: at least once. The order within a partition is kept.

    With `from_beginning` it is no member: it reads partition 0 of each topic from its beginning, whoever else does, and
    the group has its offsets only for lag tools.

    `places` are this member's partitions, None while the group has not decided. `changes` counts the decisions: a
    record that was read before a change must not be written after it, as another member may have written later ones.

    Args:
        kafka: librdkafka's options with bootstrap.servers.

    Raises:
        ConfigError: librdkafka rejects an option.
    """

    def __init__(
        self,
        kafka: Mapping[str, Any],
        group: str,
        topics: Sequence[str],
        *,
        from_beginning: bool = False,
        connect: Callable[[Mapping[str, Any]], Consumer] = clients.consumer,
        ids: Callable[[AdminClient, Sequence[str], float], dict[str, str]] = _ids,
    ) -> None:
        self._group, self._topics = group, list(topics)
        self._admin, self._ask_ids = clients.admin(kafka), ids
        self._ids: dict[str, str] = {}
        self.places: frozenset[Place] | None = None
        self.changes = 0
        self._records: list[Record] = []
        self._bytes = 0
        self._next: Positions = {}
        self._read: Positions = {}
        self._done: Positions = {}
        self._committed: Positions = {}
        self._commit_due_s = 0.0
        self._is_paused = False
        options = {**_DEFAULTS, **kafka, **_FIXED, "group.id": group, "on_commit": self._on_commit}
        self._consumer = connect(options)
        if from_beginning:
            self._forget(frozenset(Place(topic, 0) for topic in self._topics))
            self._consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in self._topics])
        else:
            self._consumer.subscribe(
                self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )

    def read(self, limit: int, timeout_s: float) -> list[Record]:
        """Return at most `limit` next records, of about `MAX_BYTES`. Wait up to `timeout_s` seconds for the first one.

        Raises:
            KafkaException: the broker forbids to read, or librdkafka has a fatal error.
        """
        if self._is_paused:
            self._consumer.resume(self._partitions())
            self._is_paused = False
        deadline = time.monotonic() + timeout_s
        while len(self._records) < limit and self._bytes < MAX_BYTES:
            left_s = max(deadline - time.monotonic(), 0.0)
            if not self._poll(0.0 if self._records else left_s) or not (self._records or left_s):
                break
        records, self._records, self._bytes = self._records, [], 0
        self._read = dict(self._next)
        return records

    def done(self) -> None:
        """Note that all that `read` returned is written. It is committed at most `COMMIT_S` later, if `read` is called.

        The offset of a partition whose end was reached is that end: markers of transactions are before it.
        """
        self._done |= self._read
        now_s = time.monotonic()
        if now_s >= self._commit_due_s and self._commit(asynchronous=True):
            self._commit_due_s = now_s + COMMIT_S

    def wait(self, seconds: float) -> None:
        """Stay a member of the group for some seconds without reading. The next `read` goes on."""
        if not self._is_paused:
            self._consumer.pause(self._partitions())
            self._is_paused = True
        deadline = time.monotonic() + seconds
        while (left_s := deadline - time.monotonic()) > 0:
            self._poll(left_s)

    def position(self, place: Place) -> int:
        """Return the next offset after what `read` returned, -1 before the first record or the end of the partition."""
        return self._read.get(place, -1)

    def end_of(self, place: Place, timeout_s: float) -> int:
        """Ask for the end of a partition: its last stable offset.

        Raises:
            KafkaException: the broker did not answer in time, or has no such partition.
        """
        return bounds_of(self._consumer, TopicPartition(*place), timeout=timeout_s)[1]

    def check_topics(self, timeout_s: float) -> None:
        """Begin a topic that was deleted and created again at its beginning: its offsets mean other records.

        Kafka does not tell a consumer. If the new topic is longer than the position, it would go on in the middle.

        Raises:
            KafkaException: the broker did not answer in time.
        """
        ids = self._ask_ids(self._admin, self._topics, timeout_s)
        again = {topic for topic, id_ in ids.items() if self._ids.get(topic, id_) != id_}
        for place in self.places or ():
            if place.topic in again:
                log.warning("%s was deleted and created again: it is read from its beginning", place.topic)
                self._consumer.seek(TopicPartition(*place, OFFSET_BEGINNING))
                for positions in (self._next, self._read, self._done, self._committed):
                    positions.pop(place, None)
        if again:
            self._records = [record for record in self._records if record.topic not in again]
            self.changes += 1
        self._ids |= ids

    def close(self) -> None:
        """Commit what is written, and leave the group."""
        self._consumer.close()  # this calls _on_revoke

    def _poll(self, timeout_s: float) -> bool:
        """Take one message or event. Return whether there was one."""
        message = self._consumer.poll(timeout_s)
        if message is None:
            return False
        error, place = message.error(), Place(message.topic() or "", message.partition() or 0)
        offset = message.offset() or 0
        if error is None:
            value = message.value()
            self._records.append(Record(place.topic, offset, message.key(), value, place.partition))
            self._bytes += len(value or b"")
            self._next[place] = offset + 1
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (librdkafka's name for it)
            self._next[place] = max(offset, self._next.get(place, 0))
        elif error.fatal() or error.code() in _REJECTED:
            raise KafkaException(error)
        else:
            log.warning("%s; trying again", error.str().rstrip("."))
        return True

    def _partitions(self) -> list[TopicPartition]:
        return [TopicPartition(*place) for place in self.places or ()]

    def _on_assign(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._forget(frozenset(Place(one.topic, one.partition) for one in partitions))
        if not partitions:
            log.info("%s: another member of the group has all partitions; standing by", self._group)

    def _on_revoke(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._commit(asynchronous=False)
        self._forget(None)

    def _on_lost(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        log.warning("%s: the group has excluded this member; joining it again", self._group)
        self._forget(None)

    def _forget(self, places: frozenset[Place] | None) -> None:
        self.places = places
        self.changes += 1
        self._records, self._bytes = [], 0
        for positions in (self._next, self._read, self._done, self._committed):
            positions.clear()
        self._is_paused = False

    def _commit(self, *, asynchronous: bool) -> bool:
        """Commit what is written. Return whether there was something to commit."""
        offsets = [
            TopicPartition(*place, offset)
            for place, offset in self._done.items()
            if self._committed.get(place) != offset
        ]
        if not offsets:
            return False
        try:
            if asynchronous:
                self._consumer.commit(offsets=offsets, asynchronous=True)
            else:
                self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            log.warning("%s: the offsets are not committed: %s", self._group, error.args[0].str())
        return True

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            failed = error or one.error
            if failed is None:
                self._committed[Place(one.topic, one.partition)] = one.offset
            else:
                log.warning("%s: the offsets are not committed yet: %s", self._group, failed.str())
