"""What one metric adds to a report, piece by piece: why so many of a kind fit into a snapshot's time."""

from __future__ import annotations

import statistics
import time
from random import Random
from typing import TYPE_CHECKING

import msgspec

from tallystream.reporter import MetricRegistry

if TYPE_CHECKING:
    from collections.abc import Callable

NEW_VALUES = 20


def microseconds(rounds: int) -> dict[str, float]:
    """Return the median processor time of each piece, in microseconds, a full sample and a warm sketch given."""
    registry, draw, encode = MetricRegistry("bench"), Random(1), msgspec.json.Encoder().encode
    counter, histogram = registry.counter("counter"), registry.histogram("histogram")
    for _ in range(2000):
        histogram.update(draw.lognormvariate(-3, 1))
    taken: dict[str, list[float]] = {}

    def time_of(what: str, step: Callable[..., object], *given: object) -> object:
        begin = time.thread_time_ns()
        made = step(*given)
        taken.setdefault(what, []).append((time.thread_time_ns() - begin) / 1000)
        return made

    inside = histogram._distribution
    for _ in range(100 * rounds):
        counter.inc()
        made = time_of("a counter: read", counter.read)
        time_of("a counter: encode", encode, made)
        values = [draw.lognormvariate(-3, 1) for _ in range(NEW_VALUES)]
        now = registry.clock.monotonic()
        time_of(f"a histogram: work {NEW_VALUES} values in", inside.take, values, now)
        time_of("a histogram: weigh its sample for mean, deviation and six quantiles", inside.view, now)
        time_of("a histogram: the sketch's text", inside._sketch.encode)
        histogram.update(1.0)
        made = histogram.read()
        time_of("a histogram: encode", encode, made)
    return {what: statistics.median(times) for what, times in taken.items()}
