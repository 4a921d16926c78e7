"""The values of a histogram and a timer, from the buffer in which they wait to the sum: who works them in, and when."""

from __future__ import annotations

import math
import sys
from fractions import Fraction
from threading import Lock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tallystream.reporter import MetricRegistry, Sampling, SlidingTimeWindow, SlidingWindow, Uniform
from tallystream.reporter.histogram import AT_ONCE, BUFFER, MOST_WAITING
from tallystream.reporter.testing import ManualClock


@pytest.mark.parametrize("kind", ["histogram", "timer"])
def test_before_the_first_value_there_is_no_least_and_no_greatest(registry: MetricRegistry, kind: str) -> None:
    """The record of a distribution without values has a count of zero, and neither min nor max."""
    read = getattr(registry, kind)("d").read()
    assert (read.count, read.sum, read.min, read.max) == (0, 0.0, None, None)


@pytest.mark.parametrize("kind", ["histogram", "timer"])
def test_an_update_waits_for_another_only_where_much_waits(registry: MetricRegistry, kind: str) -> None:
    """While a thread works values in, the others leave theirs in the buffer, up to a bound: memory is bounded."""

    class Taken:
        """A lock that another thread has, until somebody waits for it."""

        def __init__(self) -> None:
            self.asked: list[bool] = []

        def acquire(self, blocking: bool = True) -> bool:
            self.asked.append(blocking)
            return blocking

        def release(self) -> None:
            pass

    metric = getattr(registry, kind)("d")
    metric._lock = lock = Taken()
    for _ in range(MOST_WAITING):
        assert True not in lock.asked
        metric.update(1.0)
    assert lock.asked == [False] * (MOST_WAITING - BUFFER) + [True]
    waiting = len(metric._buffer)
    assert waiting == MOST_WAITING - AT_ONCE
    metric._lock = Lock()
    while waiting >= BUFFER:  # what piled up goes bit by bit
        metric.update(1.0)
        assert 0 < waiting - len(metric._buffer) < AT_ONCE
        waiting = len(metric._buffer)
    assert metric.read().sum == metric.count >= MOST_WAITING


@pytest.mark.parametrize("kind", ["histogram", "timer"])
@pytest.mark.parametrize("after", [1, 3 * BUFFER, MOST_WAITING + BUFFER])
def test_a_snapshot_s_work_is_not_an_update_s(registry: MetricRegistry, kind: str, after: int) -> None:
    """What a snapshot holds is made a record by the snapshot, not by an update that comes before that is done.

    But where too many values wait for that; the record has the values of its moment in either case.
    """
    metric = getattr(registry, kind)("d")
    for _ in range(3):
        metric.update(1.0)
    held = metric.capture()
    for _ in range(after):
        metric.update(2.0)
    assert (held.record is not None) == (after > MOST_WAITING)
    assert (metric.captured(held).count, metric.captured(held).sum) == (3, 3.0)
    assert (metric.read().count, metric.read().sum) == (3 + after, 3.0 + 2 * after)


@pytest.mark.parametrize("kind", ["histogram", "timer"])
def test_a_sum_beyond_all_numbers_is_the_largest(registry: MetricRegistry, kind: str) -> None:
    """Nothing is raised, and everything else is as it was: the other metrics are reported, and this one's count."""
    metric, largest = getattr(registry, kind)("d"), sys.float_info.max
    for value in (largest, int(largest), 1.0):
        metric.update(value)
    read = metric.read()
    assert (read.count, read.sum, read.min, read.max) == (3, largest, 1.0, largest)
    metric.update(largest)
    assert metric.read().sum == largest
    assert metric.sketch().count == 4


@example([1e308, 1e308, -1e308], 3)  # beyond all numbers on the way alone
@example([0.5e308, 0.0, 0.0, 1e308, 1e308, -1e308], 3)
@example([0.5e308, 1e308, 1e308, -1.5e308], 1)
@example([-1e308, -1e308, 0.5e308], 1)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=60), st.integers(1, BUFFER - 1))
def test_the_sum_is_that_of_all_values(values: list[float], together: int) -> None:
    """Within the rounding of each step, where no step leaves the numbers; of the largest ones as well."""
    metric, total = MetricRegistry("a").histogram("h"), Fraction()
    largest, passed = Fraction(sys.float_info.max), Fraction()
    for at in range(0, len(values), together):
        for value in values[at : at + together]:
            metric.update(value)
            passed += abs(Fraction(value))
        metric.count  # noqa: B018 - works the values in
        total = min(max(total + sum(map(Fraction, values[at : at + together])), -largest), largest)
    assert abs(Fraction(metric.read().sum) - total) <= passed * len(values) / 2**50 + Fraction(1, 2**1070)


@pytest.mark.parametrize("sampling", [SlidingWindow(), SlidingTimeWindow(60), Uniform()], ids=repr)
@pytest.mark.parametrize("large", [1e155, 1e308, sys.float_info.max])
def test_a_view_of_the_largest_numbers_is_of_numbers(sampling: Sampling, large: float) -> None:
    """Where squares and sums are beyond all numbers, mean and deviation are right, or the largest number there is."""
    registry = MetricRegistry("a", clock=ManualClock(), sampling=sampling)
    histogram, counter = registry.histogram("h"), registry.counter("c")
    for value in (large, -large, large, large):
        histogram.update(value)
    counter.inc()
    seen = histogram.view()
    assert seen is not None
    assert all(math.isfinite(each) for each in seen)
    assert seen.mean == pytest.approx(large / 2)
    assert seen.stddev == pytest.approx(large)
    assert [metric.name for metric in registry.snapshot(views=True)] == ["h", "c"]
