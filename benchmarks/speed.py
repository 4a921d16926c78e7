"""The processor time of a fixed piece of work, to compare the speed of machines."""

from __future__ import annotations

import json
import statistics
import time

RUNS = 15


def work() -> int:
    """Do a fixed piece of work in one thread, with dicts, integers and JSON."""
    counts: dict[str, int] = {}
    for number in range(50_000):
        name = str(number % 1000)
        counts[name] = counts.get(name, 0) + number
    return sum(sum(json.loads(json.dumps(counts)).values()) for _ in range(10))


def work_ms(runs: int = RUNS) -> float:
    """Return the median processor time of `work` in several runs, in ms."""
    times = []
    for _ in range(runs):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return statistics.median(times) * 1000
