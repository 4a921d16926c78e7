"""The application of the demonstration: a consumer of flights that embeds the reporter, as any application would.

    python -m tallystream.compose.demonstration.app --bootstrap-servers HOST:PORT --instance app-1 --journal FILE

It reports after each batch and before it commits it, so that what it committed is always counted. Its journal is a
plain file that knows nothing of Tallystream: the independent count.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
from pathlib import Path
from typing import IO, Any

import msgspec
from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from tallystream.reporter import ConsumerProgress, KafkaReporter, MetricRegistry

GROUP = "flights"


def main() -> None:
    """Consume until SIGTERM; then finish the batch, report for the last time, and end."""
    arguments = _arguments()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())

    registry = MetricRegistry("flights")
    progress = ConsumerProgress(registry, "flights.processed")
    delay = registry.histogram("flights.delay")
    batches = registry.timer("flights.batch")
    in_flight = registry.gauge("flights.in_flight")

    consumer = Consumer(
        {
            "bootstrap.servers": arguments.bootstrap_servers,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 1000,
            "fetch.wait.max.ms": 50,
        }
    )
    reporter = KafkaReporter(registry, bootstrap_servers=arguments.bootstrap_servers, instance=arguments.instance)
    with arguments.journal.open("a", encoding="utf-8") as journal, reporter:
        consumer.subscribe([GROUP], on_assign=lambda _consumer, got: _write(journal, assigned=_numbers(got)))
        try:
            while not stop.is_set():
                messages = [message for message in consumer.consume(arguments.batch, timeout=0.2) if _good(message)]
                if not messages:
                    continue
                in_flight.set(len(messages))
                with batches.time():
                    for message in messages:
                        late = msgspec.json.decode(message.value() or b"{}").get("arr_delay")
                        if late is not None:
                            delay.update(late)
                progress.processed(messages)
                in_flight.set(0)
                _write(journal, processed=len(messages), runs=runs(messages))
                while not reporter.report_now(timeout=10):
                    if stop.is_set():
                        return
                _write(journal, acknowledged=progress.counter.count)
                if arguments.hold is not None and arguments.hold.exists():
                    _write(journal, hold=True)
                    stop.wait()
                    return
                _commit(consumer, journal)
        finally:
            consumer.close()


def runs(messages: list[Message]) -> list[list[int]]:
    """Return what was consumed as runs without gaps: [partition, first offset, last offset]."""
    found: dict[int, list[list[int]]] = {}
    for message in messages:
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        mine = found.setdefault(partition, [])
        if mine and mine[-1][2] == offset - 1:
            mine[-1][2] = offset
        else:
            mine.append([partition, offset, offset])
    return [run for partition in sorted(found) for run in found[partition]]


def _good(message: Message) -> bool:
    error = message.error()
    if error is not None:
        raise KafkaException(error)
    return True


def _commit(consumer: Consumer, journal: IO[str]) -> None:
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as error:
        # A rebalance took the partitions away meanwhile: whoever has them now processes the batch again.
        _write(journal, not_committed=str(error))


def _numbers(partitions: list[TopicPartition]) -> list[int]:
    return sorted(partition.partition for partition in partitions)


def _write(journal: IO[str], **entry: Any) -> None:
    # Flushed, not synced: it has to outlive this process, not the machine.
    journal.write(json.dumps(entry) + "\n")
    journal.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Consume flights and report what was processed.")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--instance", required=True, help="the instance ID, the same after a restart")
    parser.add_argument("--journal", required=True, type=Path, help="the file that lists what was processed")
    parser.add_argument("--batch", type=int, default=500, help="events in a batch, at most")
    parser.add_argument("--hold", type=Path, help="once this file exists, wait for ever between report and commit")
    return parser.parse_args()


if __name__ == "__main__":
    main()
