"""The Kafka helpers of the aggregator on a real broker, without Spark."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from support.kafka import committed
from support.kafka import read_topic as read_for_tests
from tallystream_aggregator.jobs.aggregate.query_watch import commit_offsets
from tallystream_aggregator.jobs.aggregate.start_position import GROUP
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.kafka.broker import KafkaBroker as Access
from tallystream_aggregator.stream.reading import committed_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


def test_the_group_has_the_positions_of_a_new_table(broker: KafkaBroker, topics: Topics) -> None:
    """They may be lower than those of the table before. A group without members stores them."""
    servers, group = broker.bootstrap_servers, topics.prefix + GROUP
    for positions in ({Place(topics.metrics, 0): 5}, {Place(topics.metrics, 0): 0}):
        with clients.metadata_consumer({"bootstrap.servers": servers}, group) as consumer:
            commit_offsets(consumer, positions)
        assert committed(servers, group, topics.metrics) == positions[Place(topics.metrics, 0)]


@contextmanager
def writing(servers: str, topic: str) -> Iterator[None]:
    """Append a record every 20 ms. A fetch of librdkafka waits longer, so it never reaches the end."""
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


def test_a_topic_that_keeps_growing_is_read_to_its_end(broker: KafkaBroker, topics: Topics) -> None:
    """Every reader returns with all records that existed when it started, while more are appended."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(50):
        producer.produce(topics.agg, key=b"k", value=b'{"epoch":2}')
    producer.flush(30)
    access = Access({"bootstrap.servers": broker.bootstrap_servers}, Selection(topics.metrics), "tests")
    with writing(broker.bootstrap_servers, topics.agg):
        assert len(list(committed_records(access, Place(topics.agg, 0)))) >= 50
        assert len(read_for_tests(broker.bootstrap_servers, topics.agg)) >= 50
