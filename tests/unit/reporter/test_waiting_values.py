"""The values of a histogram and a timer, from the buffer in which they wait to the sum: who works them in, and when."""

from __future__ import annotations

import math
from fractions import Fraction
from threading import Lock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream import ExponentiallyDecaying, MetricRegistry, Sampling, SlidingTimeWindow, SlidingWindow, Uniform
from tallystream.metrics.histogram import BUFFER, MAX_PENDING
from tallystream.testing import ManualClock


@pytest.mark.parametrize("kind", ["histogram", "timer"])
def test_before_the_first_value_there_is_no_least_and_no_greatest(registry: MetricRegistry, kind: str) -> None:
    """The record of a distribution without values has a count of zero, and neither min nor max."""
    read = getattr(registry, kind)("d").read()
    assert (read.count, read.sum, read.min, read.max) == (0, 0.0, None, None)


@pytest.mark.parametrize("kind", ["histogram", "timer"])
def test_an_update_waits_for_another_only_where_much_waits(registry: MetricRegistry, kind: str) -> None:
    """While a thread works values in, the others leave theirs in the buffer, up to a bound: memory is bounded."""

    class RemovedLife:
        """A lock that another thread has, until somebody waits for it."""

        def __init__(self) -> None:
            self.asked: list[bool] = []

        def acquire(self, blocking: bool = True) -> bool:
            self.asked.append(blocking)
            return blocking

        def release(self) -> None:
            pass

    metric = getattr(registry, kind)("d")
    metric._lock = lock = RemovedLife()
    for _ in range(MAX_PENDING):
        assert True not in lock.asked
        metric.update(1.0)
    assert lock.asked == [False] * (MAX_PENDING - BUFFER) + [True]
    assert metric._buffer == []
    metric._lock = Lock()
    assert metric.read().sum == metric.count == MAX_PENDING


@given(st.lists(st.floats(-1e150, 1e150), max_size=60), st.integers(1, BUFFER - 1))
def test_the_sum_is_that_of_all_values(values: list[float], together: int) -> None:
    """Within the rounding of each step; of the largest ones as well."""
    metric, passed = MetricRegistry("a").histogram("h"), Fraction()
    for at, value in enumerate(values):
        metric.update(value)
        passed += abs(Fraction(value))
        if at % together == 0:
            metric.count  # noqa: B018 - works the values in
    total = sum(map(Fraction, values))
    assert abs(Fraction(metric.read().sum) - total) <= passed * len(values) / 2**50 + Fraction(1, 2**1070)


SAMPLINGS = [None, ExponentiallyDecaying(), SlidingWindow(), SlidingTimeWindow(60), Uniform()]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=repr)
def test_a_view_of_the_largest_numbers_is_of_numbers(sampling: Sampling | None) -> None:
    """Their squares and their sums are finite, so mean and deviation are."""
    registry = MetricRegistry("a", clock=ManualClock(), sampling=sampling)
    histogram, large = registry.histogram("h"), 1e150
    for value in (large, -large, large, large):
        histogram.update(value)
    seen = histogram.view()
    assert seen is not None
    assert all(math.isfinite(each) for each in seen)
    assert seen.mean == pytest.approx(large / 2)
    assert seen.stddev == pytest.approx(large, rel=0.15)  # of a sample, or of all values
