"""Histograms and timers."""

from __future__ import annotations

import asyncio
import math
from fractions import Fraction
from threading import Lock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream import MetricRegistry
from tallystream.metrics.histogram import BUFFER, MAX_PENDING
from tallystream.testing import ManualClock


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1.001e150, -1e200, 10**151])
def test_a_histogram_rejects_values_that_are_not_finite_or_too_large(registry: MetricRegistry, bad: float) -> None:
    """The error for NaN, infinity or a magnitude above 1e150 names the histogram."""
    with pytest.raises(ValueError, match="'h' can't take"):
        registry.histogram("h").update(bad)
    with pytest.raises(ValueError, match="'t' can't take"):
        registry.timer("t").update(bad)
    assert registry.histogram("h").count == registry.timer("t").count == 0


def test_a_timer_measures_blocks_and_functions(registry: MetricRegistry, clock: ManualClock) -> None:
    """time() and the decorator also measure code that raises; `elapsed` is set afterwards."""
    timer = registry.timer("t")
    with timer.time() as timing:
        clock.advance(2)
    assert timing.elapsed == 2

    @timer
    def fail(seconds: float) -> None:
        """Raise an error after some time."""
        clock.advance(seconds)
        raise KeyError(seconds)

    with pytest.raises(KeyError):
        fail(3)
    assert fail.__doc__ == "Raise an error after some time."
    read = timer.read()
    assert (read.count, read.sum, read.min, read.max) == (2, 5, 2, 3)
    assert read.mean_rate == pytest.approx(2 / 5)
    with pytest.raises(ValueError, match="a duration is not negative"):
        timer.update(-0.1)


def test_a_timer_measures_asynchronous_blocks(registry: MetricRegistry, clock: ManualClock) -> None:
    """`async with` works like `with`."""

    async def main() -> None:
        async with registry.timer("t").time() as timing:
            await asyncio.sleep(0)
            clock.advance(2)
        assert timing.elapsed == 2

    asyncio.run(main())
    assert registry.timer("t").read().sum == 2


@pytest.mark.parametrize("kind", ["histogram", "timer"])
def test_without_values_there_is_no_min_and_no_max(registry: MetricRegistry, kind: str) -> None:
    """The record has a count of zero, and neither min nor max."""
    read = getattr(registry, kind)("d").read()
    assert (read.count, read.sum, read.min, read.max) == (0, 0.0, None, None)


@pytest.mark.parametrize("kind", ["histogram", "timer"])
def test_an_update_waits_only_if_many_values_are_buffered(registry: MetricRegistry, kind: str) -> None:
    """While a thread processes the buffer, others add to it up to a limit, so that memory is limited."""

    class HeldLock:
        """A lock that another thread holds until it is waited for."""

        def __init__(self) -> None:
            self.blocking: list[bool] = []

        def acquire(self, blocking: bool = True) -> bool:
            self.blocking.append(blocking)
            return blocking

        def release(self) -> None:
            pass

    metric = getattr(registry, kind)("d")
    metric._lock = lock = HeldLock()
    for _ in range(MAX_PENDING):
        assert True not in lock.blocking
        metric.update(1.0)
    assert lock.blocking == [False] * (MAX_PENDING - BUFFER) + [True]
    assert metric._buffer == []
    metric._lock = Lock()
    assert metric.read().sum == metric.count == MAX_PENDING


@given(st.lists(st.floats(-1e150, 1e150), max_size=60), st.integers(1, BUFFER - 1))
def test_the_sum_is_that_of_all_values(values: list[float], together: int) -> None:
    """Within the rounding errors of the steps, also for the largest values."""
    metric, passed = MetricRegistry("a").histogram("h"), Fraction()
    for at, value in enumerate(values):
        metric.update(value)
        passed += abs(Fraction(value))
        if at % together == 0:
            metric.count  # noqa: B018 - the access processes the buffered values
    total = sum(map(Fraction, values))
    assert abs(Fraction(metric.read().sum) - total) <= passed * len(values) / 2**50 + Fraction(1, 2**1070)


@pytest.mark.parametrize("sampled", [False, True])
def test_a_view_of_the_largest_values_is_finite(*, sampled: bool) -> None:
    """Mean and deviation are finite, since squares and sums are."""
    registry = MetricRegistry("a", clock=ManualClock())
    if sampled:
        registry.keep_samples()
    histogram, large = registry.histogram("h"), 1e150
    for value in (large, -large, large, large):
        histogram.update(value)
    seen = histogram.view()
    assert seen is not None
    assert all(math.isfinite(each) for each in seen)
    assert seen.mean == pytest.approx(large / 2)
    assert seen.stddev == pytest.approx(large, rel=0.15)  # of a sample, or of all values
