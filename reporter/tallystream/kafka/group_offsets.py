"""Offsets of a consumer group without members. It only stores how far a reader got that keeps its offsets elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystream.clock import Deadline
from tallystream.errors import TallystreamError
from tallystream.kafka.producer import make_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from confluent_kafka import KafkaError, TopicPartition

Partition = tuple[str, int]
"""A topic and the number of a partition."""


class OffsetsError(TallystreamError):
    """The brokers did not answer in time, or with an error."""


class Committed(NamedTuple):
    """A committed offset, and the metadata that was committed with it, a text."""

    offset: int
    metadata: str


class GroupOffsets:
    """Reads and commits the offsets of one group. An offset never decreases. Every call has a time limit.

    Args:
        options: the options of librdkafka, with bootstrap.servers.
        group: the group's name.
        monotonic: the clock of the time limits.

    Raises:
        ConfigError: librdkafka refuses an option.
    """

    def __init__(self, options: Mapping[str, Any], group: str, monotonic: Callable[[], float]) -> None:
        import confluent_kafka

        self.group = group
        self._monotonic = monotonic
        self._known: dict[Partition, int] = {}
        self._results: list[tuple[dict[Partition, int], KafkaError | None]] = []
        fixed = {"group.id": group, "enable.auto.commit": False, "enable.auto.offset.store": False}
        self._consumer = make_client(
            confluent_kafka.Consumer, {**options, **fixed, "on_commit": self._on_commit}, sorted(options)
        )

    def read(self, partitions: Iterable[Partition], timeout: float) -> dict[Partition, Committed]:
        """Return the committed offsets of those of the partitions that have one.

        Raises:
            OffsetsError: they can't be read.
        """
        from confluent_kafka import TopicPartition

        self._consumer.poll(0)  # delivers librdkafka's messages to the log
        wanted = [TopicPartition(*at) for at in partitions]
        with _as_offsets_error():
            found = self._consumer.committed(wanted, timeout=timeout) if wanted else []
        for one in found:
            if one.error is not None:
                raise OffsetsError(one.error.str())
        self._known.update({(one.topic, one.partition): one.offset for one in found})
        return {
            (one.topic, one.partition): Committed(one.offset, one.metadata or "") for one in found if one.offset >= 0
        }

    def beginning_offsets(self, partitions: Iterable[Partition], timeout: float) -> dict[Partition, int]:
        """Return the first offset of each partition.

        Raises:
            OffsetsError: they can't be read.
        """
        from confluent_kafka import TopicPartition

        deadline = Deadline(timeout, self._monotonic)
        with _as_offsets_error():
            return {
                at: self._consumer.get_watermark_offsets(TopicPartition(*at), timeout=deadline.left())[0]
                for at in partitions
            }

    def commit(self, offsets: Mapping[Partition, int], metadata: str, timeout: float) -> None:
        """Commit the offsets that are not lower than the group's.

        Raises:
            OffsetsError: they are not committed, or it is not known. The next commit has them too.
        """
        from confluent_kafka import TopicPartition

        self.read([at for at in offsets if at not in self._known], timeout)
        moves = {at: offset for at, offset in offsets.items() if offset >= self._known[at]}
        if not moves:
            return
        self._results.clear()
        with _as_offsets_error():
            self._consumer.commit(
                offsets=[TopicPartition(*at, offset, metadata) for at, offset in moves.items()], asynchronous=True
            )
        deadline = Deadline(timeout, self._monotonic)
        while not (mine := [error for committed, error in self._results if committed == moves]):
            if not deadline.left():
                raise OffsetsError("the brokers did not answer")
            self._consumer.poll(0.05)
        if mine[0] is not None:
            raise OffsetsError(mine[0].str())
        self._known.update(moves)

    def close(self) -> None:
        """Close the connection."""
        self._consumer.close()

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        committed = {(one.topic, one.partition): one.offset for one in partitions}
        self._results.append((committed, error or next((one.error for one in partitions if one.error), None)))


@contextmanager
def _as_offsets_error() -> Iterator[None]:
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as error:
        raise OffsetsError(error.args[0].str()) from error
