"""The consumer loop of docs/embedding.md, with librdkafka's broker in the process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, Producer, TopicPartition

from tallystream import ConsumerProgress, MetricRegistry
from tallystream.testing import InMemoryReporter

if TYPE_CHECKING:
    from collections.abc import Callable

EMBEDDING = Path(__file__).parents[3] / "docs" / "embedding.md"


class Running:
    """A condition that is True until its second evaluation after `done()`, so that the loop runs once more."""

    def __init__(self, done: Callable[[], bool]) -> None:
        self.done, self.times = done, 0

    def __bool__(self) -> bool:
        self.times += self.done()
        return self.times < 2


def test_the_documented_loop_continues_after_errors_and_empty_batches() -> None:
    """The loop raises nothing for an error among the messages or an empty batch, and commits what it read."""
    (loop,) = re.findall(r"```python\n(progress = .*?)```", EMBEDDING.read_text(encoding="utf-8"), re.DOTALL)
    mock = {"bootstrap.servers": "in-process", "test.mock.num.brokers": 1, "log_level": 4}
    consumer = Consumer({**mock, "group.id": "g", "enable.auto.commit": False, "enable.partition.eof": True})
    (broker,) = consumer.list_topics("flights", timeout=30).brokers.values()
    producer = Producer({"bootstrap.servers": f"{broker.host}:{broker.port}"})
    for _ in range(3):
        producer.produce("flights", value=b"flight", partition=0)
    assert producer.flush(30) == 0
    consumer.assign([TopicPartition("flights", 0, 0)])
    registry = MetricRegistry("orders")
    processed = registry.counter("flights.processed")
    handled: list[Any] = []
    scope = {"registry": registry, "consumer": consumer, "ConsumerProgress": ConsumerProgress}
    scope |= {"reporter": InMemoryReporter(registry), "handle": handled.extend}
    scope |= {"running": Running(lambda: processed.count == 3 and len(handled) == 4)}  # the fourth is the end
    exec(loop, scope)
    (committed,) = consumer.committed([TopicPartition("flights", 0)], timeout=30)
    consumer.close()
    assert committed.offset == 3
