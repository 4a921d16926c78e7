"""Latency by the sums' values: which updates a sum includes, and how long each took."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.aggregator.latency import latencies, percentile
from benchmarks.aggregator.load import Taken
from benchmarks.aggregator.watch import Arrival

SENT = np.array([10.0, 10.1, 10.2, 10.3, 10.4])
UPDATES = Taken(0, np.array([5, 1, 7, 2, 3]), np.array([0] * 5))
"""Two metrics: the first grows by 5, 7 and 3, the second by 1 and 2."""
NO_BASE = np.zeros(2, np.int64)


def test_an_update_is_timed_to_the_first_sum_that_includes_it() -> None:
    """The first sum with several new updates gives each of them its latency. Later sums do not change it."""
    arrivals = [Arrival(10.5, 0, 12), Arrival(10.6, 1, 1), Arrival(11.0, 0, 15), Arrival(12.0, 1, 3)]
    found = latencies(UPDATES, NO_BASE, SENT, arrivals)
    assert found.seconds.tolist() == pytest.approx([0.5, 0.5, 0.3, 1.7, 0.6])
    assert found.odd == 0


def test_an_update_that_no_sum_includes_has_no_latency() -> None:
    """Its latency is NaN, so it is neither zero nor missing."""
    found = latencies(UPDATES, NO_BASE, SENT, [Arrival(10.5, 0, 5)])
    assert [math.isnan(one) for one in found.seconds] == [False, True, True, True, True]


def test_a_sum_between_two_values_is_counted_as_odd() -> None:
    """It is no sum of the first updates of its metric. It times only the updates that it surely includes."""
    found = latencies(UPDATES, NO_BASE, SENT, [Arrival(10.5, 0, 11), Arrival(10.9, 0, 12)])
    assert found.odd == 1
    assert found.seconds[[0, 2]].tolist() == pytest.approx([0.5, 0.7])


def test_sums_may_begin_above_zero() -> None:
    """The base is subtracted. The first update may be of any metric."""
    from_second_metric = Taken(1, UPDATES.steps, UPDATES.readings)
    found = latencies(from_second_metric, np.array([100, 50]), SENT, [Arrival(11.0, 1, 62), Arrival(11.0, 0, 103)])
    assert found.odd == 0
    assert found.seconds.tolist() == pytest.approx([1.0, 0.9, 0.8, 0.7, math.nan], nan_ok=True)


@pytest.mark.parametrize(("percent", "expected"), [(50, 50.0), (95, 95.0), (99, 99.0), (100, 100.0)])
def test_percentiles_are_values_that_occurred(percent: float, expected: float) -> None:
    """They are the values of the nearest rank, in any order of the values."""
    assert percentile(np.array([float(n) for n in range(100, 0, -1)]), percent) == expected


def test_a_percentile_without_values_is_nan() -> None:
    """It is neither an error nor zero."""
    assert math.isnan(percentile(np.array([]), 50))
