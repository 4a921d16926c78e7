"""How fast this machine is: the processor time of a fixed piece of work, to compare machines."""

from __future__ import annotations

import json
import statistics
import time

RUNS = 15


def work() -> int:
    """Do what takes about as long on any day on the same quiet machine: dicts, integers and JSON in one thread."""
    counts: dict[str, int] = {}
    for number in range(50_000):
        name = str(number % 1000)
        counts[name] = counts.get(name, 0) + number
    return sum(sum(json.loads(json.dumps(counts)).values()) for _ in range(10))


def work_ms() -> float:
    """Return the median processor time of `work` in several runs, in ms."""
    times = []
    for _ in range(RUNS):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return statistics.median(times) * 1000
