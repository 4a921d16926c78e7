"""The reader of a whole topic."""

from __future__ import annotations

from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.reader import read_from, read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import TopicPartition


class Broker:
    """A consumer of a topic with three records, of which retention deletes two after their offsets were asked for."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._reset = options.get("auto.offset.reset", "largest")  # librdkafka's default
        self._left: list[Any] = []

    def list_topics(self, topic: str, timeout: float) -> Any:  # noqa: ARG002
        """Return the topic, which has one partition."""
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions={0: None})})

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:  # noqa: ARG002
        """Return the offsets before the deletion."""
        return 0, 3

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Begin at these offsets, of which the broker has deleted some."""
        (begin,) = partitions
        offset = {"earliest": 2, "largest": 3}[self._reset] if begin.offset < 2 else begin.offset
        self._left = [_message(number, None) for number in range(offset, 3)]
        self._left.append(_end(3))

    def poll(self, timeout: float) -> Any:  # noqa: ARG002
        """Return the next record, or the event at the end."""
        return self._left.pop(0)

    def unassign(self) -> None:
        """Read no more."""

    close = unassign


class Polls:
    """A consumer that returns these messages, one at each poll, then none."""

    def __init__(self, messages: Iterator[Any]) -> None:
        self._messages = messages

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Begin."""

    def poll(self, timeout: float) -> Any:  # noqa: ARG002
        """Return the next message."""
        return next(self._messages, None)

    def unassign(self) -> None:
        """Read no more."""


def _end(offset: int) -> Any:
    return _message(offset, KafkaError(KafkaError._PARTITION_EOF))


def _read(messages: Iterator[Any], ends: Mapping[int, int], timeout: float = 10.0) -> list[tuple[int, int]]:
    consumer: Any = Polls(messages)
    reads = read_from(consumer, "metrics-table", dict.fromkeys(ends, 0), ends, timeout=timeout)
    return [(read.partition, read.offset) for read in reads]


def _message(offset: int, error: KafkaError | None, partition: int = 0) -> Any:
    fields: dict[str, Any] = {"error": error, "partition": partition, "offset": offset, "timestamp": (2, 0)}
    fields |= {"key": b"k", "value": b"%d" % offset}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in fields.items()})


def test_records_that_retention_deletes_meanwhile_do_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader continues at the first record that is left. An empty ledger would be read as a new one."""
    monkeypatch.setattr(clients, "consumer", lambda options, **_: Broker(options))
    assert [read.offset for read in read_topic("metrics-ledger", {"bootstrap.servers": "kafka"})] == [2]


def test_records_that_a_follower_does_not_have_yet_are_read() -> None:
    """A follower, or a new leader, reports its own end. The end that was asked for may be higher."""
    messages = [_message(0, None), _end(1), _message(1, None), _end(2), _message(2, None)]
    assert _read(iter(messages), {0: 3}) == [(0, 0), (0, 1), (0, 2)]


def test_a_partition_whose_last_records_are_deleted_ends_at_its_end() -> None:
    """The reader waits for no record that compaction has removed, or that belongs to an aborted transaction."""
    assert _read(iter([_message(0, None), _end(3)]), {0: 3}) == [(0, 0)]


def test_a_follower_that_stays_behind_is_an_error() -> None:
    """The records that exist are not taken for all records."""
    with pytest.raises(TallystreamError, match=r"metrics-table: its end was not reached in 10 s"):
        _read(iter([_message(0, None), _end(1)]), {0: 3})


def test_new_records_of_another_partition_do_not_extend_the_wait() -> None:
    """Partition 1 has been read to its end and keeps growing, partition 0 sends nothing."""
    growing = (_message(offset, None, partition=1) for offset in count())
    with pytest.raises(TallystreamError, match="its end was not reached in 0 s"):
        _read(growing, {0: 3, 1: 2}, timeout=0)
