"""The consumers of docs/examples and the loop of docs/embedding.md: the counts are exactly what was processed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from support.examples import System
from support.guides import ROOT, commands
from support.wait import wait_until
from tallystream import ConsumerProgress, MetricRegistry
from tallystream.testing import InMemoryReporter
from tallystream_aggregator.kafka.topics import Topics
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

RECORDS = 3000
EMBEDDING = ROOT / "docs" / "embedding.md"
LOOPS = [words for words in commands("kafka-consumer") if words[1] != "docs/examples/confluent_consumer.py"]
"""The loop of the other program is in test_tour.py, which kills it in each window of a batch."""


@pytest.fixture
def system(broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path) -> System:
    return System(broker.bootstrap_servers, topic_prefix, admin, tmp_path)


@pytest.mark.parametrize("words", LOOPS, ids=lambda words: Path(words[1]).stem)
def test_a_consumer_loop(system: System, words: list[str]) -> None:
    """After SIGTERM the counts are what was processed. After SIGKILL no record is missed.

    What the killed process had counted but not committed is counted twice, and taken twice. How often exactly, and that
    `compare` says so, is in test_tour.py.
    """
    example = str(ROOT / words[1])
    given = {"python": sys.executable, words[1]: example, "localhost:9092": system.servers, "flights": system.input}
    command = [given.get(word, word) for word in words]
    system.produce(RECORDS)
    process = system.start(*command)
    try:
        wait_until(lambda: system.count("flights.processed") > 0 or process.poll(), 180, "some are counted")
        system.end(process)
        counted = system.count("flights.processed")
        assert counted == system.covered("flights.processed.position") == sum(system.committed())
        system.produce(3 * RECORDS)
        process = system.start(*command)
        wait_until(lambda: system.count("flights.processed") > counted, 180, "more are counted")
        process.kill()
        process.wait(60)
        process = system.start(*command)
        wait_until(lambda: system.lives() == 3 and sum(system.committed()) == 4 * RECORDS, 180, "all are committed")
        system.end(process)
    finally:
        process.kill()
        process.wait()
    assert system.covered("flights.processed.position") == 4 * RECORDS
    assert system.covered("flights.processed.taken.position") == 4 * RECORDS
    assert system.count("flights.processed.taken") >= system.count("flights.processed") >= 4 * RECORDS


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
