"""Counters: integers that only grow, exact with any number of threads, without waiting."""

from __future__ import annotations

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tallystream import Counter
from tallystream.metrics.counter import BUFFER

if TYPE_CHECKING:
    from tallystream import MetricRegistry


def test_a_counter_grows_by_whole_numbers_only(registry: MetricRegistry) -> None:
    """inc() adds one and inc(n) adds n; the error for a negative number or a fraction names the metric."""
    counter = registry.counter("c")
    counter.inc()
    counter.inc(41)
    counter.inc(0)
    with pytest.raises(ValueError, match=r"'c' can't grow by -1; use registry\.updown"):
        counter.inc(-1)
    for broken in (1.5, 1.0, "1", Decimal("1.5"), Decimal("inf"), Decimal("nan"), None):
        with pytest.raises(TypeError):
            counter.inc(broken)  # type: ignore[arg-type]
    assert counter.count == 42


@pytest.mark.parametrize("change", [math.nan, math.inf, -math.inf, -1e308, Decimal("nan")])
def test_an_updown_stays_finite(registry: MetricRegistry, change: Any) -> None:
    """A change to NaN or beyond the range of floats is an error that names the metric; the value is unchanged."""
    updown = registry.updown("u")
    updown.dec(1.5e308)
    for update in (updown.inc, lambda n: updown.dec(-n)):
        with pytest.raises(ValueError, match=r"^the up-down counter 'u' can't change by -?(nan|inf|1e\+308) to"):
            update(change)
    assert updown.value == -1.5e308
    updown.inc(1.5e308)
    updown.inc(5)
    assert updown.value == 5


def test_no_increment_is_lost_between_threads(registry: MetricRegistry) -> None:
    """Eight threads that update the same metric lose nothing, for every type that counts."""
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


def test_a_counter_is_exact_while_it_is_read() -> None:
    """Readings never decrease, and each includes everything that was counted before it began."""
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


def test_the_memory_of_a_counter_is_limited(registry: MetricRegistry) -> None:
    """Increments are added up even if the counter is never read."""
    counter = registry.counter("c")
    for _ in range(10_000):
        counter.inc(2)
    assert len(counter._amounts) < BUFFER
    assert counter.count == 20_000
