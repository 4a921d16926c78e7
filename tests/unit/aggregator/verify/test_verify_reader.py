"""The reader of `verify`, with the messages of a broker in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError

from tallystream_aggregator.kafka import clients
from tallystream_aggregator.verify.reader import read_all

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition


class Broker:
    """A consumer that returns these messages. The leader's end is `end`."""

    def __init__(self, end: int, messages: list[Any]) -> None:
        self._end, self._messages = end, iter(messages)

    def assign(self, partitions: list[TopicPartition]) -> None:
        """Begin."""

    def poll(self, timeout: float) -> Any:  # noqa: ARG002
        """Return the next message."""
        return next(self._messages, None)

    def consume(self, num_messages: int, timeout: float) -> list[Any]:  # noqa: ARG002
        """Return no more messages than `poll`."""
        return []

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:  # noqa: ARG002
        """Return the offsets that the leader has."""
        return 0, self._end

    def close(self) -> None:
        """Do nothing."""


def _message(offset: int, error: KafkaError | None = None) -> Any:
    fields = {"error": error, "offset": offset, "key": b"k", "value": b"v", "timestamp": (1, 0)}
    return SimpleNamespace(**{name: lambda value=value: value for name, value in fields.items()})


def _end(offset: int) -> Any:
    return _message(offset, KafkaError(KafkaError._PARTITION_EOF))


@pytest.mark.parametrize("end", [2, 9])
def test_records_that_a_follower_does_not_have_yet_are_read(monkeypatch: pytest.MonkeyPatch, end: int) -> None:
    """The range ends where the leader says, also if a sum claims more records than the partition has."""
    messages = [_message(0), _end(1), _message(1), _end(2)]
    monkeypatch.setattr(clients, "consumer", lambda _: Broker(2, messages))
    assert [record.offset for record in read_all({}, {"metrics:0": (0, end)})] == [0, 1]
