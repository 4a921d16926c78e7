"""The cost of an unavailable broker for the application: time and memory."""

from __future__ import annotations

import os
import statistics
from random import Random
from typing import Any

import psutil
from reports import LIVE, fill, make_reporter, touch
from timing import Side, nanoseconds

from tallystream import MetricRegistry
from tallystream.testing import ManualClock

DEAD: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1"}


def dead_broker(rounds: int) -> dict[str, float]:
    """Return the nanoseconds of `counter.inc()` without a reporter, with a live broker and with a dead one."""
    measured: dict[str, list[float]] = {"no reporter": [], "live broker": [], "dead broker": []}
    registries = {name: MetricRegistry("bench") for name in measured}
    sides = {name: Side(name, "it.inc()", registry.counter("c")) for name, registry in registries.items()}
    for registry in registries.values():
        fill(registry, {"counter": 100})
    for _ in range(rounds):
        for name, where in (("no reporter", None), ("live broker", LIVE), ("dead broker", DEAD)):
            reporter = make_reporter(registries[name], where, interval=0.1).start() if where else None
            measured[name].append(nanoseconds([sides[name]], [1], 1_000_000, 2)[name])
            if reporter:
                reporter.stop(timeout=0.5)
    return {name: statistics.median(times) for name, times in measured.items()}


def hour_of_outage() -> tuple[float, float, int]:
    """Report 3,600 times to a dead broker, once in each second of a manual clock.

    Return the memory of the process in MB after ten minutes and after the hour, and the number of records in flight.
    """
    clock, draw = ManualClock(), Random(1)
    registry = MetricRegistry("bench", clock=clock)
    metrics = fill(registry, {"counter": 80, "meter": 10, "histogram": 10})
    reporter = make_reporter(registry, DEAD)
    reporter._open()
    process, sizes = psutil.Process(os.getpid()), []
    for second in range(3600):
        touch(metrics, draw, 20, still=False)
        reporter._report()
        clock.advance(1)
        if second in (599, 3599):
            sizes.append(process.memory_info().rss / 1e6)
    waiting = len(reporter._lives.in_flight)
    reporter.stop(timeout=0.1)
    return sizes[0], sizes[1], waiting
