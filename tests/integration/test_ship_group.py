"""The shipper's subscription on librdkafka's own group of consumers (its mock cluster)."""

from __future__ import annotations

import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from support.wait import wait_until
from tallystream_aggregator.shipping.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT_S = 60.0
"""Seconds before a wait fails."""

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture
def producer() -> Iterator[Producer]:
    """A producer that has a cluster in its process, with the topic `t` of four partitions."""
    made = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0})
    made.produce("t", b"1")
    assert made.flush(LIMIT_S) == 0
    yield made
    made.purge()


@pytest.fixture
def kafka(producer: Producer) -> dict[str, str]:
    """The options of a client of that cluster."""
    brokers = producer.list_topics(timeout=LIMIT_S).brokers.values()
    servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    return {"bootstrap.servers": servers, "heartbeat.interval.ms": "300", "topic.metadata.refresh.interval.ms": "500"}


def _committed(kafka: dict[str, str]) -> int:
    with closing(Consumer({**kafka, "group.id": "g", "log_level": 0})) as consumer:
        places = [TopicPartition("t", partition) for partition in range(4)]
        return sum(max(one.offset, 0) for one in consumer.committed(places, timeout=LIMIT_S))


def test_partitions_that_come_back_during_an_outage_of_the_store_are_read_again(
    producer: Producer, kafka: dict[str, str]
) -> None:
    """In librdkafka a partition stays paused that is revoked and assigned again."""
    found: set[bytes | None] = set()

    def read(number: int) -> bool:
        found.update(record.value for record in one.read(100, 0.1))
        return len(found) == number

    def holds(number: int) -> bool:
        one.wait(0.05)
        return len(one.places or ()) == number

    with closing(Subscription(kafka, "g", ["t"], lambda _: {})) as one:
        wait_until(lambda: read(1), LIMIT_S, "the record is read", poll=0.01)
        with closing(Subscription(kafka, "g", ["t"], lambda _: {})) as other:
            wait_until(lambda: holds(2) and not other.read(1, 0.05), LIMIT_S, "each has two", poll=0.01)
        wait_until(lambda: holds(4), LIMIT_S, "it has all again", poll=0.01)
        for number in range(20):
            producer.produce("t", f"new {number}", partition=number % 4)
        assert producer.flush(LIMIT_S) == 0
        wait_until(lambda: read(21), LIMIT_S, "all are read", poll=0.01)


def test_what_is_written_is_committed_while_it_runs_and_at_the_end(producer: Producer, kafka: dict[str, str]) -> None:
    """What is only read is not committed."""
    with closing(Subscription(kafka, "g", ["t"], lambda _: {})) as one:

        def read() -> bool:
            return bool(one.read(100, 0.1))

        wait_until(read, LIMIT_S, "the record is read", poll=0.01)
        time.sleep(1.5)
        assert _committed(kafka) == 0
        one.written()
        wait_until(lambda: _committed(kafka) == 1, LIMIT_S, "it is committed")
        producer.produce("t", b"2")
        assert producer.flush(LIMIT_S) == 0
        wait_until(read, LIMIT_S, "the next one is read", poll=0.01)
        one.written()
    assert _committed(kafka) == 2
