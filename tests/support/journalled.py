"""Programs that write a line to a journal for everything that they do. Kill -9 takes no line from it.

    python tests/support/journalled.py send JOURNAL SERVERS TOPIC COUNTER RECORDS
    python tests/support/journalled.py consume JOURNAL SERVERS TOPIC INSTANCE [WINDOW]

The consumer is that of docs/examples. In a window it waits to be killed.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Message, Producer

from tallystream import KafkaReporter, MetricRegistry, ProducerProgress

BEFORE, DURING, AFTER, COUNTED = WINDOWS = ("before-the-work", "during-the-work", "after-the-work", "before-the-commit")


class Journal:
    """A file to which lines are appended."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())

    def hold(self, window: str, batch: int) -> None:
        """Say where the process is, with how many records, and stay there."""
        self.write("holds", window, batch)
        while True:
            signal.pause()


def send(journal: Journal, servers: str, topic: str, counter: str, records: str) -> None:
    """Send records, and end."""
    registry = MetricRegistry("senders")
    progress = ProducerProgress(registry, counter)

    def delivered(error: object, message: Any) -> None:
        progress.delivered(error, message)
        journal.write("sent", message.partition(), message.offset())

    with KafkaReporter(registry, bootstrap_servers=servers, instance="senders-1"):
        producer = Producer({"bootstrap.servers": servers})
        for number in range(int(records)):
            producer.produce(topic, f"record {number}", key=str(number), on_delivery=delivered)
        assert producer.flush(60) == 0


def consume(journal: Journal, servers: str, topic: str, instance: str, window: str = "") -> None:
    """Process records until SIGTERM."""
    import confluent_consumer as example

    batch = 0

    def handle(messages: Sequence[Message]) -> None:
        nonlocal batch
        batch = len(messages)
        for number, message in enumerate(messages):
            if (window, number) in ((BEFORE, 0), (DURING, batch // 2)):
                journal.hold(window, batch)
            journal.write("worked", message.partition(), message.offset())
        if window == AFTER:
            journal.hold(window, batch)

    class Holding(Consumer):
        def commit(self, **options: Any) -> Any:
            if window == COUNTED:
                journal.hold(window, batch)
            return super().commit(**options)

    vars(example).update(handle=handle, Consumer=Holding)
    example.main(servers, topic, instance)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "examples"))
    name, path, *arguments = sys.argv[1:]
    program = send if name == "send" else consume
    program(Journal(path), *arguments)
