"""A large table changes hands: from a writer that was stopped to the first new sums of the one that stood by."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from confluent_kafka import Producer

from support.application import assert_exact
from support.faults import PATIENCE
from support.hostile_records import counter, snapshot
from support.kafka import latest_sums
from support.processes import send, tree
from support.supervised import Aggregator
from support.wait import wait_until
from tallystream.ulid import new_ulid

if TYPE_CHECKING:
    from pathlib import Path

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_cli.servers.broker import KafkaBroker

TAKEOVER_S = 30.0 * PATIENCE
COUNTERS = 50
"""Of each instance; with a thousand instances the table has 50,000 rows."""


def takeover(broker: KafkaBroker, topics: Topics, folder: Path, instances: int) -> None:
    """Stop every process of the writer (SIGSTOP): the second has the next record in its sums in time, exactly."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    lives = [new_ulid(int(time.time() * 1000)) for _ in range(instances)]

    def publish(instance: int, seq: int, count: int) -> None:
        value = snapshot(lives[instance], seq, [counter(f"n{number}", count) for number in range(COUNTERS)])
        producer.produce(topics.metrics, key=f"instance-{instance}".encode(), value=value)
        producer.poll(0)

    def summed(count: int) -> bool:
        found = latest_sums(broker.bootstrap_servers, topics.agg).values()
        return [row.count for row in found] == [count] * COUNTERS

    for instance in range(instances):
        publish(instance, 1, 1)
    assert producer.flush(60) == 0
    first = Aggregator(broker.bootstrap_servers, topics.prefix, folder / "first")
    second = Aggregator(broker.bootstrap_servers, topics.prefix, folder / "second", "--standby")
    second.checkpoint = first.checkpoint
    for each in (first, second):
        each.folder.mkdir()
    with first, second:
        first.start().wait_ready()
        wait_until(lambda: summed(instances), 120, f"{instances * COUNTERS:,} rows are summed")
        second.start()
        wait_until(lambda: "waiting for the lease" in second.said(), 120, "the second stands by")
        stopped = tree(first.process.pid)
        send(stopped, signal.SIGSTOP)
        publish(0, 2, 11)
        assert producer.flush(60) == 0
        wait_until(lambda: summed(instances + 10), TAKEOVER_S, "the second has taken over, with its first new sums")
        send(stopped, signal.SIGCONT)
        assert first.process.wait(120) == 1, first.said()
        assert_exact(broker, topics)
        assert second.stop() == 0, second.said()
