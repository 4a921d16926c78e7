"""ConsumerProgress and ProducerProgress: a count and the positions that it covers."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import ConsumerRecord
from confluent_kafka import KafkaError, Message

from tallystream import ConsumerProgress, MetricRegistry, ProducerProgress, record
from tallystream.testing import assert_count, find


def message(topic: str, partition: int, offset: int) -> Message:
    return Message(topic=topic, partition=partition, offset=offset)


def test_consumer_progress_counts_and_moves_positions_in_one_step(registry: MetricRegistry) -> None:
    """Messages of several partitions are counted, and each position is the next offset."""
    progress = ConsumerProgress(registry, "flights.processed", tags={"group": "g"})
    assert progress.processed([message("flights", 0, 5), message("flights", 1, 9), message("flights", 0, 6)]) == 3
    assert progress.processed(message("flights", 0, o) for o in (7, 8)) == 2
    assert progress.processed([]) == 0
    name = "flights.processed.position"
    tags = {"group": "g", "topic": "flights"}
    assert registry.snapshot() == [
        record.Counter(name="flights.processed", tags={"group": "g"}, count=5),
        record.Position(name=name, tags={**tags, "partition": "0"}, start=5, position=9),
        record.Position(name=name, tags={**tags, "partition": "1"}, start=9, position=10),
    ]


def test_what_is_taken_has_a_counter_and_positions_of_its_own(registry: MetricRegistry) -> None:
    """Taking moves neither the count nor the positions of what was processed. Errors are skipped."""
    progress = ConsumerProgress(registry, "c", tags={"group": "g"})
    error = Message(topic="t", partition=0, offset=8, error=KafkaError(KafkaError._PARTITION_EOF))
    assert progress.taken([message("t", 0, 5), message("t", 0, 6), error]) == 2
    assert progress.processed([message("t", 0, 5)]) == 1
    tags = {"group": "g", "topic": "t", "partition": "0"}
    assert registry.snapshot() == [
        record.Counter(name="c", tags={"group": "g"}, count=1),
        record.Counter(name="c.taken", tags={"group": "g"}, count=2),
        record.Position(name="c.taken.position", tags=tags, start=5, position=7),
        record.Position(name="c.position", tags=tags, start=5, position=6),
    ]


def test_consumer_progress_accepts_records_with_attributes(registry: MetricRegistry) -> None:
    """Records of aiokafka are counted like messages of confluent-kafka."""
    progress = ConsumerProgress(registry, "c")
    records = [ConsumerRecord("t", 3, offset, 0, 0, None, b"", None, 0, 0, ()) for offset in (7, 8)]
    assert progress.processed(records) == 2
    tags = {"topic": "t", "partition": "3"}
    assert find(registry, "c.position", tags=tags) == record.Position(name="c.position", tags=tags, start=7, position=9)


def test_consumer_progress_skips_messages_with_an_error(registry: MetricRegistry) -> None:
    """Errors that `consume()` returns are neither counted nor cover an offset."""
    progress = ConsumerProgress(registry, "c")
    end = Message(topic="t", partition=0, offset=6, error=KafkaError(KafkaError._PARTITION_EOF))
    unknown = Message(topic="u", error=KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    nowhere = Message(error=KafkaError(KafkaError._ALL_BROKERS_DOWN))
    read = message("t", 0, 5)
    assert progress.processed([nowhere, read, unknown, end]) == 1
    assert progress.processed([nowhere]) == 0
    name, tags = "c.position", {"topic": "t", "partition": "0"}
    assert registry.snapshot() == [
        record.Counter(name="c", tags={}, count=1),
        record.Position(name=name, tags=tags, start=5, position=6),
    ]


@pytest.mark.parametrize("wrong", [Message(topic="t", partition=0), None, object()])
def test_consumer_progress_rejects_a_message_without_offset(registry: MetricRegistry, wrong: Any) -> None:
    """A message that no consumer read, or the None of `poll()`, raises ValueError; nothing of its batch is counted."""
    progress = ConsumerProgress(registry, "c")
    with pytest.raises(ValueError, match="has the offset None"):
        progress.processed([message("t", 0, 1), wrong])
    assert_count(registry, "c", 0)


def test_producer_progress_counts_what_was_delivered(registry: MetricRegistry) -> None:
    """The positions are the offsets of what arrived. A message that failed is not counted."""
    progress = ProducerProgress(registry, "sent", tags={"region": "eu"})
    failed = Message(topic="t", partition=0, error=KafkaError(KafkaError._MSG_TIMED_OUT))
    progress.delivered(failed.error(), failed)
    for offset in (7, 8):
        progress.delivered(None, message("t", 0, offset))
    tags = {"region": "eu"}
    where = {**tags, "topic": "t", "partition": "0"}
    assert registry.snapshot() == [
        record.Counter(name="sent", tags=tags, count=2),
        record.Position(name="sent.position", tags=where, start=7, position=9),
    ]
