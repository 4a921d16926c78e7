"""Ten instances of an application, of which the oldest is replaced every second, with other names of metrics.

    python -m support.soak.applications SERVERS JOURNAL READY_FILE

After SIGTERM every instance makes its last report. Then the journal, a JSON file, has what was counted by name.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
from collections import Counter, deque
from itertools import count
from pathlib import Path

from tallystream import KafkaReporter, MetricRegistry

APP = "soak"
INSTANCES = 10
NAMES = 50
"""A sum stays for ever, so the names come again."""


def main(servers: str, journal: str, ready_file: str) -> None:
    """Run until SIGTERM."""
    stopped = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())
    counted = Counter[str]()

    def start(number: int) -> tuple[KafkaReporter, MetricRegistry, str]:
        registry = MetricRegistry(APP)
        reporter = KafkaReporter(registry, bootstrap_servers=servers, instance=f"soak-{number}")
        return reporter.start(), registry, f"work.{number % NAMES}"

    instances = deque(map(start, range(INSTANCES)))
    for number in count(INSTANCES):
        for _, registry, own in instances:
            for name in ("records", own):
                records = random.randrange(1, 1000)
                registry.counter(name).inc(records)
                counted[name] += records
            registry.gauge("queue").set(random.random())
            registry.timer("handled").update(random.random())
        # What was reported counts, however its instance ends. In an outage no instance is replaced.
        if instances[0][0].report_now(0.5):
            instances.popleft()[0].stop()
            instances.append(start(number))
            Path(ready_file).touch()
        if stopped.wait(1):
            break
    for reporter, _, _ in instances:
        while not reporter.report_now():
            sys.stderr.write(f"{reporter} waits for the broker\n")
        reporter.stop()
    Path(journal).write_text(json.dumps(counted), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
