"""A process that counts and reports until SIGTERM, and keeps a journal of the acknowledged counts.

    python reporting_process.py BOOTSTRAP TOPIC INSTANCE JOURNAL

Each line of the journal is an ID of this process and the count that was acknowledged.
"""

from __future__ import annotations

import signal
import sys
import uuid
from pathlib import Path

from tallystream import KafkaReporter, MetricRegistry
from tallystream.process.signals import SignalSafeEvent


def main() -> None:
    """Count, report and write the journal until SIGTERM."""
    bootstrap_servers, topic, instance, journal = sys.argv[1:]
    stopped = SignalSafeEvent()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    registry = MetricRegistry("orders")
    processed = registry.counter("records.processed")
    count, process = 0, uuid.uuid4().hex
    with (
        Path(journal).open("a", encoding="utf-8") as lines,
        KafkaReporter(registry, bootstrap_servers=bootstrap_servers, instance=instance, topic=topic) as reporter,
    ):
        while not stopped.wait(0.02):
            processed.inc(7)
            count += 7
            if reporter.report_now(timeout=30):
                lines.write(f"{process} {count}\n")
                lines.flush()


if __name__ == "__main__":
    main()
