"""Counters: whole numbers that only grow, exact whatever the threads, and without waiting."""

from __future__ import annotations

import itertools
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tallystream.reporter import (
    Counter,
    MetricRegistry,
    _ticks,
)
from tallystream.reporter.counter import BUFFER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def test_counter_grows_by_whole_numbers_only(registry: MetricRegistry) -> None:
    """inc() adds one, inc(n) adds n; a negative or broken number is refused, and the message names the metric."""
    counter = registry.counter("c")
    counter.inc()
    counter.inc(41)
    counter.inc(0)
    with pytest.raises(ValueError, match=r"'c' can't grow by -1; use registry\.updown"):
        counter.inc(-1)
    for broken in (1.5, 1.0, "1"):
        with pytest.raises(TypeError):
            counter.inc(broken)  # type: ignore[arg-type]
    assert counter.count == 42


def test_no_increment_is_lost_between_threads(registry: MetricRegistry) -> None:
    """Eight threads that count at once lose nothing, in any type that counts."""
    counter, updown, meter = registry.counter("c"), registry.updown("u"), registry.meter("m")
    histogram, timer = registry.histogram("h"), registry.timer("t")

    def work(_: int) -> None:
        for number in range(5_000):
            counter.inc()
            updown.inc(2)
            updown.dec()
            meter.mark()
            histogram.update(number)
            timer.update(0.5)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert counter.count == updown.value == meter.count == histogram.count == timer.count == 40_000
    assert histogram.read().sum == 8 * sum(range(5_000))


@pytest.mark.parametrize("has_gil", [True, False])
def test_counter_is_exact_while_it_is_read(has_gil: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings taken while threads count never go back, and each has all that was counted before it began."""
    monkeypatch.setattr(_ticks, "HAS_GIL", has_gil)
    counter = Counter("c", {})
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    done = [0] * 4

    def work(number: int) -> None:
        for step in range(5_000):
            counter.inc()
            counter.inc(step)
            done[number] += 1 + step

    def watch(_: int) -> None:
        last = 0
        while sum(done) < 4 * sum(range(5_001)):
            known = sum(done)
            now = counter.count
            assert now >= max(known, last)
            last = now

    try:
        with ThreadPoolExecutor(6) as pool:
            watching = [pool.submit(watch, 0) for _ in range(2)]
            list(pool.map(work, range(4)))
            for watcher in watching:
                watcher.result()
    finally:
        sys.setswitchinterval(before)
    assert counter.count == 4 * sum(range(5_001))


@pytest.mark.parametrize("make", [_ticks.LockedTicks, itertools.count])
def test_ticks_are_read_without_a_step(make: Callable[[], Iterator[int]]) -> None:
    """With and without a GIL, reading changes nothing, and large numbers are read whole."""
    ticks = make()
    assert [next(ticks), next(ticks), _ticks.ticked(ticks), _ticks.ticked(ticks), next(ticks)] == [0, 1, 2, 2, 2]
    assert _ticks.ticked(itertools.count(2**63)) == 2**63


def test_many_amounts_are_kept_in_little_space(registry: MetricRegistry) -> None:
    """Amounts that nobody reads are added up all the same, so they take no memory."""
    counter = registry.counter("c")
    for _ in range(10_000):
        counter.inc(2)
    assert len(counter._amounts) < BUFFER
    assert counter.count == 20_000


def test_counting_while_the_counter_is_read_does_not_wait(registry: MetricRegistry) -> None:
    """inc() in a signal handler or finalizer that interrupts a reading of the same counter goes on, and counts."""
    counter = registry.counter("c")
    with counter._lock:
        for _ in range(2 * BUFFER):
            counter.inc()
            counter.inc(2)
    assert counter.count == 6 * BUFFER
