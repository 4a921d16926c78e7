"""The cost of one metric in a report, by step."""

from __future__ import annotations

import statistics
import time
from random import Random
from typing import TYPE_CHECKING

import msgspec
from reports import INTERVAL, NEW_VALUES, PAST, WAITING, touch

from tallystream import MetricRegistry
from tallystream.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable


def microseconds(rounds: int) -> dict[str, float]:
    """Return the mean processor time of each step, in microseconds.

    They are measured on a hundred counters, a hundred histograms, and a hundred histograms with samples. As in the
    benchmark of reports, the histograms were updated for an hour.
    """
    clock, draw, encode = ManualClock(), Random(1), msgspec.json.Encoder().encode
    registry = MetricRegistry("bench", clock=clock)
    counters = [registry.counter(f"counter.{number}") for number in range(100)]
    histograms = [registry.histogram(f"histogram.{number}") for number in range(100)]
    sampled = [registry.histogram(f"sampled.{number}") for number in range(100)]
    for histogram in sampled:
        histogram.keep_sample()
    for _ in range(PAST):
        clock.advance(INTERVAL)
        touch(histograms + sampled, draw, NEW_VALUES, still=True)
        registry.snapshot(views=False)
    times: dict[str, list[float]] = {}

    def measure(what: str, step: Callable[..., object], *given: object) -> object:
        begin = time.thread_time_ns()
        result = step(*given)
        times.setdefault(what, []).append((time.thread_time_ns() - begin) / 1000)
        return result

    for _ in range(rounds):
        clock.advance(INTERVAL)
        for counter, histogram, other in zip(counters, histograms, sampled, strict=True):
            counter.inc()
            value = measure("a counter: read", counter.read)
            measure("a counter: encode as JSON", encode, value)
            values = [draw.lognormvariate(-3, 1) for _ in range(WAITING)]
            histogram._pending = values.copy()
            measure(f"a histogram: add {WAITING} values", histogram._add_pending)
            measure("a histogram: encode the sketch as a record struct", histogram._sketch.encode)
            measure("a histogram: encode the record as JSON", encode, histogram.collect(views=False))
            sample = other._reservoir
            measure(f"a sample of a local reporter: add {WAITING} values", sample.update, values, clock.monotonic())
            measure("a sample of a local reporter: compute the view", sample.view)
    return {what: statistics.fmean(each) for what, each in times.items()}
