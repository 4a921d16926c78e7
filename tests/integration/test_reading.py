"""Topics are read to their end as it was, though records keep coming: on a real broker."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from support.kafka import read_topic as read_for_tests
from tallystream_aggregator.jobs.aggregate.repair import TopicWatch
from tallystream_aggregator.kafka.ledger import Epochs
from tallystream_aggregator.kafka.reader import read_topic
from tallystream_aggregator.verify.reader import bounds, read_all

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


@contextmanager
def writing(servers: str, topic: str) -> Iterator[None]:
    """Append a record every 20 ms, which is more often than a fetch of librdkafka waits for one."""
    producer = Producer({"bootstrap.servers": servers})
    stop = threading.Event()

    def write() -> None:
        while not stop.wait(0.02):
            producer.produce(topic, key=b"k", value=b'{"epoch":2}')
            producer.poll(0)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        producer.flush(10)


def test_a_topic_that_never_rests_is_read_to_its_end(broker: KafkaBroker, topics: Topics) -> None:
    """Every reader returns, with all that was there when it began: none waits for a moment in which nothing comes."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(50):
        producer.produce(topics.agg, key=b"k", value=b'{"epoch":2}')
    producer.flush(30)
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    watch = TopicWatch(topics.agg, kafka, Epochs(lambda: None), epoch=2)
    with writing(broker.bootstrap_servers, topics.agg):
        assert len(list(read_topic(topics.agg, kafka))) >= 50
        assert len(list(read_all(kafka, bounds(kafka, topics.agg)))) >= 50
        assert len(read_for_tests(broker.bootstrap_servers, topics.agg)) >= 50
        assert watch.poll() == set()
    watch.close()
