"""A consumer of a group, for unit tests: a test says what `poll` returns and what the group decides."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Message:
    """A record, or an error."""

    def __init__(
        self, topic: str, offset: int, *, partition: int = 0, key: bytes = b"k", error: int | None = None
    ) -> None:
        self._at = topic, partition, offset
        self._key = key
        self._error = None if error is None else KafkaError(error)

    def topic(self) -> str:
        """Return the topic."""
        return self._at[0]

    def partition(self) -> int:
        """Return the partition."""
        return self._at[1]

    def offset(self) -> int:
        """Return the offset, of the end if it is reached."""
        return self._at[2]

    def key(self) -> bytes:
        """Return the key."""
        return self._key

    def value(self) -> bytes:
        """Return the value."""
        return b"v"

    def error(self) -> KafkaError | None:
        """Return the error."""
        return self._error


def end(topic: str, offset: int) -> Message:
    """Return the event that the end of a partition is reached."""
    return Message(topic, offset, error=KafkaError._PARTITION_EOF)


class ScriptedConsumer:
    """What `Subscription` uses of a consumer. `script` has messages, and calls of the group's callbacks.

    `stored` has what librdkafka would commit, `committed` what was committed at once, `paused` and `sought` what was
    paused and sought. As in librdkafka, a partition that is paused stays so when it is revoked and assigned again.
    """

    def __init__(self) -> None:
        self.script: list[Message | Callable[[], None]] = []
        self.options: Mapping[str, Any] = {}
        self.topics: list[str] = []
        self.stored: dict[str, int] = {}
        self.committed: list[dict[str, int]] = []
        self.paused: set[str] = set()
        self.sought: list[tuple[str, int]] = []
        self.is_closed = False

    def connect(self, options: Mapping[str, Any]) -> Any:
        """Return the consumer."""
        self.options = options
        return self

    def subscribe(self, topics: list[str], *, on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        """Keep the callbacks."""
        self.topics, self._on_assign, self._on_revoke, self._on_lost = topics, on_assign, on_revoke, on_lost

    def assign_topics(self, *topics: str) -> None:
        """Let the next poll learn that the group gives this member partition 0 of these topics."""
        self.script.append(lambda: self._on_assign(self, [TopicPartition(topic, 0) for topic in topics]))

    def revoke(self) -> None:
        """Let the next poll learn that the group takes all partitions."""
        self.script.append(lambda: self._on_revoke(self, []))

    def lose(self) -> None:
        """Let the next poll learn that the group has excluded this member."""
        self.script.append(lambda: self._on_lost(self, []))

    def poll(self, _timeout: float) -> Message | None:
        """Return the next message of a partition that is not paused, after the callbacks before it."""
        for one in list(self.script):
            if not isinstance(one, Message):
                self.script.remove(one)
                one()
            elif one.topic() not in self.paused:
                self.script.remove(one)
                return one
        return None

    def store_offsets(self, *, offsets: list[TopicPartition]) -> None:
        """Keep the offsets."""
        self.stored |= {one.topic: one.offset for one in offsets}

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> None:
        """Keep the offsets."""
        assert not asynchronous
        self.committed.append({one.topic: one.offset for one in offsets})

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Keep the topics."""
        self.paused |= {one.topic for one in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        """Resume these."""
        self.paused -= {one.topic for one in partitions}

    def seek(self, partition: TopicPartition) -> None:
        """Keep the position."""
        self.sought.append((partition.topic, partition.offset))

    def close(self) -> None:
        """Leave the group."""
        self._on_revoke(self, [])
        self.is_closed = True
