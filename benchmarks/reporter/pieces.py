"""What one metric adds to a report, piece by piece: why so many of a kind fit into a snapshot's time."""

from __future__ import annotations

import statistics
import time
from random import Random
from typing import TYPE_CHECKING

import msgspec
from reports import INTERVAL, NEW_VALUES, PAST, WAITING, touch

from tallystream import ExponentiallyDecaying, MetricRegistry
from tallystream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable


def microseconds(rounds: int) -> dict[str, float]:
    """Return the mean processor time of each piece, in microseconds.

    As in the report of the benchmark: of a hundred histograms that have been updated for an hour, and of a hundred
    counters. Another hundred histograms keep samples.
    """
    clock, draw, encode = ManualClock(), Random(1), msgspec.json.Encoder().encode
    registry = MetricRegistry("bench", clock=clock)
    counters = [registry.counter(f"counter.{number}") for number in range(100)]
    histograms = [registry.histogram(f"histogram.{number}") for number in range(100)]
    sampled = [registry.histogram(f"sampled.{number}", sampling=ExponentiallyDecaying()) for number in range(100)]
    for _ in range(PAST):
        clock.advance(INTERVAL)
        touch(histograms + sampled, draw, NEW_VALUES, still=True)
        registry.snapshot(views=False)
    taken: dict[str, list[float]] = {}

    def time_of(what: str, step: Callable[..., object], *given: object) -> object:
        begin = time.thread_time_ns()
        made = step(*given)
        taken.setdefault(what, []).append((time.thread_time_ns() - begin) / 1000)
        return made

    for _ in range(rounds):
        clock.advance(INTERVAL)
        for counter, histogram, other in zip(counters, histograms, sampled, strict=True):
            counter.inc()
            made = time_of("a counter: read", counter.read)
            time_of("a counter: encode", encode, made)
            values = [draw.lognormvariate(-3, 1) for _ in range(WAITING)]
            now, distribution = clock.monotonic(), histogram._distribution
            time_of(f"a histogram: work {WAITING} values in", distribution.add, values, now)
            time_of("a histogram: the sketch in the record's form", distribution._sketch.encode)
            time_of("a histogram: encode", encode, histogram.collect(views=False))
            sample = other._distribution._reservoir
            time_of(f"a local reporter's: take {WAITING} values into the sample", sample.update, values, now)
            time_of("a local reporter's: the sample's view", sample.view, now)
    return {what: statistics.fmean(times) for what, times in taken.items()}
