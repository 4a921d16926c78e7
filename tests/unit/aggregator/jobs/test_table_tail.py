"""The newest rows from the ends of the partitions, while a topic has no leader yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from tallystream_aggregator.jobs.aggregate.table_tail import TableTail
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.topics import Topics

if TYPE_CHECKING:
    import pytest


class NewTopic:
    """A consumer of a topic that was created a moment ago: the first requests find no leader."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        """Return the bounds of an empty partition."""
        self.failures -= 1
        if self.failures >= 0:
            raise KafkaException(KafkaError(KafkaError.NOT_LEADER_FOR_PARTITION))
        return 0, 0

    def assign(self, _: Any) -> None:
        """Do nothing."""

    unassign = close = lambda _: None

    def poll(self, _: float) -> Any:
        """Return the end of the partition."""
        end = KafkaError(KafkaError._PARTITION_EOF)
        return SimpleNamespace(error=lambda: end, partition=lambda: 0)


def test_a_topic_without_a_leader_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first start of an aggregator creates the topic, and reads it at once."""
    monkeypatch.setattr(clients, "reading_consumer", lambda *_, **__: NewTopic(failures=2))
    tail = TableTail(Topics(), 1, {})
    tail.poll()
    assert tail.newest[0].positions is None
