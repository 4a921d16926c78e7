"""The consumer loop of docs/embedding.md."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tallystream import ConsumerProgress, MetricRegistry
from tallystream.testing import InMemoryReporter
from tallystream_aggregator.kafka.topics import Topics
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = pytest.mark.integration

EMBEDDING = Path(__file__).parents[2] / "docs" / "embedding.md"


class Running:
    """A condition that is True until its second evaluation after `done()`, so that the loop runs once more."""

    def __init__(self, done: Callable[[], bool]) -> None:
        self.done, self.times = done, 0

    def __bool__(self) -> bool:
        self.times += self.done()
        return self.times < 2


def test_the_documented_loop_continues_after_errors_and_empty_batches(broker: KafkaBroker, topics: Topics) -> None:
    """The loop raises nothing for an error among the messages or an empty batch, and commits what it read."""
    (loop,) = re.findall(r"```python\n(progress = .*?)```", EMBEDDING.read_text(encoding="utf-8"), re.DOTALL)
    flights = topics.metrics  # any topic
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(3):
        producer.produce(flights, value=b"flight", partition=0)
    assert producer.flush(30) == 0
    options = {"group.id": flights, "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **options})
    consumer.assign([TopicPartition(flights, 0, 0)])
    registry = MetricRegistry("orders")
    processed = registry.counter("flights.processed")
    handled: list[Any] = []
    scope = {"registry": registry, "consumer": consumer, "ConsumerProgress": ConsumerProgress}
    scope |= {"reporter": InMemoryReporter(registry), "handle": handled.extend}
    scope |= {"running": Running(lambda: processed.count == 3 and len(handled) >= 4)}  # the fourth is the end
    exec(loop, scope)
    (committed,) = consumer.committed([TopicPartition(flights, 0)], timeout=30)
    consumer.close()
    assert committed.offset == 3
