"""ConsumerProgress: the counter and the positions of consumed messages."""

from __future__ import annotations

from dataclasses import dataclass

import confluent_kafka
import pytest
from aiokafka import ConsumerRecord
from confluent_kafka import KafkaError

from tallystream import ConsumerProgress, MetricRegistry, record
from tallystream.testing import assert_count, find


@dataclass
class Message:
    """A consumed message, as far as progress needs it."""

    t: str
    p: int
    o: int | None

    def topic(self) -> str:
        """Return the topic."""
        return self.t

    def partition(self) -> int:
        """Return the partition."""
        return self.p

    def offset(self) -> int | None:
        """Return the offset."""
        return self.o


def test_consumer_progress_counts_and_moves_in_one_step(registry: MetricRegistry) -> None:
    """Messages of several partitions are counted, and each partition's position is the next offset."""
    progress = ConsumerProgress(registry, "flights.processed", tags={"group": "g"})
    assert progress.processed([Message("flights", 0, 5), Message("flights", 1, 9), Message("flights", 0, 6)]) == 3
    assert progress.processed(Message("flights", 0, o) for o in (7, 8)) == 2
    assert progress.processed([]) == 0
    name = "flights.processed.position"
    tags = {"group": "g", "topic": "flights"}
    assert registry.snapshot() == [
        record.Counter(name="flights.processed", tags={"group": "g"}, count=5),
        record.Position(name=name, tags={**tags, "partition": "0"}, start=5, position=9),
        record.Position(name=name, tags={**tags, "partition": "1"}, start=9, position=10),
    ]


def test_consumer_progress_takes_records_with_attributes(registry: MetricRegistry) -> None:
    """Records as aiokafka has them are counted as messages of confluent-kafka are."""
    progress = ConsumerProgress(registry, "c")
    records = [ConsumerRecord("t", 3, offset, 0, 0, None, b"", None, 0, 0, ()) for offset in (7, 8)]
    assert progress.processed(records) == 2
    tags = {"topic": "t", "partition": "3"}
    assert find(registry, "c.position", tags=tags) == record.Position(name="c.position", tags=tags, start=7, position=9)


def test_consumer_progress_skips_messages_that_carry_an_error(registry: MetricRegistry) -> None:
    """What `consume()` returns beside records is neither counted nor an offset processed; it raises nothing."""
    progress = ConsumerProgress(registry, "c")
    end = confluent_kafka.Message(topic="t", partition=0, offset=6, error=KafkaError(KafkaError._PARTITION_EOF))
    unknown = confluent_kafka.Message(topic="u", error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    nowhere = confluent_kafka.Message(error=KafkaError(KafkaError._ALL_BROKERS_DOWN))
    read = confluent_kafka.Message(topic="t", partition=0, offset=5)
    assert progress.processed([nowhere, read, unknown, end]) == 1
    assert progress.processed([nowhere]) == 0
    name, tags = "c.position", {"topic": "t", "partition": "0"}
    assert registry.snapshot() == [
        record.Counter(name="c", tags={}, count=1),
        record.Position(name=name, tags=tags, start=5, position=6),
    ]


def test_consumer_progress_refuses_a_message_without_offset(registry: MetricRegistry) -> None:
    """A message that no consumer read is refused, and nothing of its batch is counted."""
    progress = ConsumerProgress(registry, "c")
    with pytest.raises(ValueError, match="has the offset None"):
        progress.processed([Message("t", 0, 1), Message("t", 0, None)])
    assert_count(registry, "c", 0)
