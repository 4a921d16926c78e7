"""What one metric adds to a report, piece by piece: why so many of a kind fit into a snapshot's time."""

from __future__ import annotations

import statistics
import time
from random import Random
from typing import TYPE_CHECKING

import msgspec
from reports import INTERVAL, NEW_VALUES, PAST, WAITING, touch

from tallystream.reporter import MetricRegistry
from tallystream.reporter.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable


def microseconds(rounds: int) -> dict[str, float]:
    """Return the mean processor time of each piece, in microseconds.

    As in the report of the benchmark: of a hundred histograms that have been updated for an hour, and of a hundred
    counters. Samples are looked at in another hundred.
    """
    clock, draw, encode = ManualClock(), Random(1), msgspec.json.Encoder().encode
    registry = MetricRegistry("bench", clock=clock)
    counters = [registry.counter(f"counter.{number}") for number in range(100)]
    histograms = [registry.histogram(f"histogram.{number}") for number in range(100)]
    looked_at = [registry.histogram(f"looked.at.{number}") for number in range(100)]
    for _ in range(PAST):
        clock.advance(INTERVAL)
        touch(histograms + looked_at, draw, NEW_VALUES, still=True)
        registry.snapshot(views=False)
    for histogram in looked_at:
        histogram.view()
    taken: dict[str, list[float]] = {}

    def time_of(what: str, step: Callable[..., object], *given: object) -> object:
        begin = time.thread_time_ns()
        made = step(*given)
        taken.setdefault(what, []).append((time.thread_time_ns() - begin) / 1000)
        return made

    for _ in range(rounds):
        clock.advance(INTERVAL)
        for counter, histogram, other in zip(counters, histograms, looked_at, strict=True):
            counter.inc()
            made = time_of("a counter: read", counter.read)
            time_of("a counter: encode", encode, made)
            values = [draw.lognormvariate(-3, 1) for _ in range(WAITING)]
            now, inside = clock.monotonic(), histogram._distribution
            time_of(f"a histogram: work {WAITING} values in", inside.take, values, now)
            time_of("a histogram: the sketch's text", inside._sketch.encode)
            time_of("a histogram: encode", encode, histogram.collect(views=False))
            other._distribution.take(values, now)
            time_of(f"what Kafka's report is spared: {WAITING} values into the sample, and its view", other.view)
    return {what: statistics.fmean(times) for what, times in taken.items()}
