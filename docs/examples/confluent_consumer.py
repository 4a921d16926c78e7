"""A consumer loop with confluent-kafka that commits only what was counted.

    python docs/examples/confluent_consumer.py localhost:9092 flights flights-1

Reads the topic `flights` as a consumer group, one process or many, until SIGTERM or Ctrl-C. The third argument is the
instance ID, which differs for each process. Requires only tallystream.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from confluent_kafka import Consumer

from tallystream import ConsumerProgress, KafkaReporter, MetricRegistry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Message


def handle(messages: Sequence[Message]) -> None:
    """Do the application's work."""


def main(servers: str, topic: str, instance: str) -> None:
    """Take, report, work, count, report, commit: in this order."""
    ended: list[int] = []  # the received signals: a list, because a signal handler must not acquire a lock
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _frame: ended.append(number))

    registry = MetricRegistry("flights")
    progress = ConsumerProgress(registry, "flights.processed")
    batches = registry.timer("flights.batch")
    errors = registry.counter("flights.errors")
    metrics = os.environ.get("TALLYSTREAM_TOPIC_PREFIX", "") + "metrics"

    # A static member: a process that restarts after a crash gets its partitions back immediately.
    group = {"group.id": topic + "-processing", "group.instance.id": instance}
    options = {"enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": servers, **group, **options})
    consumer.subscribe([topic])
    with KafkaReporter(registry, bootstrap_servers=servers, instance=instance, topic=metrics) as reporter:
        while not ended:
            messages = consumer.consume(500, timeout=0.5)
            good = [message for message in messages if message.error() is None]
            errors.inc(len(messages) - len(good))
            if not good:
                continue
            progress.taken(good)
            reporter.report_now(timeout=10)  # so that a kill during the work leaves a bound
            with batches.time():
                handle(good)
            progress.processed(good)
            # If the report does not arrive in time, do not commit: the next batch's commit includes these offsets.
            if reporter.report_now(timeout=10):
                consumer.commit(asynchronous=False)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
