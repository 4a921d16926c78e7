"""The reader of a whole topic."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.reader import read_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from confluent_kafka import TopicPartition


class Topic:
    """A consumer of a topic whose partitions have these ends. It returns these messages, one at each poll."""

    def __init__(self, messages: Iterator[Any], ends: Mapping[int, int]) -> None:
        self._messages, self._ends = messages, ends
        self.starts: dict[int, int] = {}

    def list_topics(self, topic: str, timeout: float) -> Any:  # noqa: ARG002
        """Return the topic."""
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None, partitions=self._ends)})

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:  # noqa: ARG002
        """Return the first offset and the end."""
        return 0, self._ends[partition.partition]

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Keep the offsets at which it begins."""
        self.starts = {one.partition: one.offset for one in partitions}

    def poll(self, timeout: float) -> Any:  # noqa: ARG002
        """Return the next message."""
        return next(self._messages, None)

    def close(self) -> None:
        """Read no more."""


def _end(offset: int) -> Any:
    return _message(offset, KafkaError(KafkaError._PARTITION_EOF))


def _message(offset: int, error: KafkaError | None, partition: int = 0) -> Any:
    fields = {"error": error, "partition": partition, "offset": offset, "key": b"k", "value": b"%d" % offset}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in fields.items()})


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[tuple[int, int]]]:
    """Return the partition and the offset of what is read of a topic."""

    def read(messages: Iterator[Any], ends: Mapping[int, int], **options: Any) -> list[tuple[int, int]]:
        monkeypatch.setattr(clients, "consumer", lambda *_, **__: Topic(messages, ends))
        found = read_topic("metrics-table", {"bootstrap.servers": "kafka"}, **{"timeout": 10.0, **options})
        return [(one.partition, one.offset) for one in found]

    return read


Reading = Callable[..., list[tuple[int, int]]]


def test_only_the_last_offsets_are_read_if_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """If retention deletes records meanwhile, those that are left are read."""
    topic = Topic(iter([_message(3, None), _end(4)]), {0: 4, 1: 0})
    options: dict[str, Any] = {}
    monkeypatch.setattr(clients, "consumer", lambda given, **_: options.update(given) or topic)
    assert [one.offset for one in read_topic("t", {"bootstrap.servers": "kafka"}, last=2)] == [3]
    assert topic.starts == {0: 2}
    assert (options["auto.offset.reset"], options["isolation.level"]) == ("earliest", "read_committed")


def test_records_that_a_follower_does_not_have_yet_are_read(read: Reading) -> None:
    """A follower, or a new leader, reports its own end. The end that was asked for may be higher."""
    messages = [_message(0, None), _end(1), _message(1, None), _end(2), _message(2, None)]
    assert read(iter(messages), {0: 3}) == [(0, 0), (0, 1), (0, 2)]


def test_a_partition_whose_last_records_are_deleted_ends_at_its_end(read: Reading) -> None:
    """The reader waits for no record that compaction has removed, or that belongs to an aborted transaction."""
    assert read(iter([_message(0, None), _end(3)]), {0: 3}) == [(0, 0)]


def test_a_follower_that_stays_behind_is_an_error(read: Reading) -> None:
    """The records that exist are not taken for all records."""
    with pytest.raises(TallystreamError, match=r"metrics-table: its end was not reached in 10 s"):
        read(iter([_message(0, None), _end(1)]), {0: 3})


def test_new_records_of_another_partition_do_not_extend_the_wait(read: Reading) -> None:
    """Partition 1 has been read to its end and keeps growing, partition 0 sends nothing."""
    growing = (_message(offset, None, partition=1) for offset in count())
    with pytest.raises(TallystreamError, match="its end was not reached in 0 s"):
        read(growing, {0: 3, 1: 2}, timeout=0)
