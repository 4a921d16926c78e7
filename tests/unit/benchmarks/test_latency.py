"""Latency by the sums' values: which updates a sum includes, and how long each took."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.aggregator.live import latencies, longest_gap
from benchmarks.aggregator.load import UpdateSlice
from benchmarks.aggregator.watch import Arrival

SENT = np.array([10.0, 10.1, 10.2, 10.3, 10.4])
TAKEN = UpdateSlice(0, np.array([5, 1, 7, 2, 3]), np.array([0] * 5))
"""Two metrics: the first grows by 5, 7 and 3, the second by 1 and 2."""
NONE = np.zeros(2, np.int64)


def test_an_update_is_timed_to_the_first_sum_that_includes_it() -> None:
    """A sum of several updates times each of them; a later sum does not time them again."""
    arrivals = [Arrival(10.5, 0, 12), Arrival(10.6, 1, 1), Arrival(11.0, 0, 15), Arrival(12.0, 1, 3)]
    found = latencies(TAKEN, NONE, SENT, arrivals)
    assert found.seconds.tolist() == pytest.approx([0.5, 0.5, 0.3, 1.7, 0.6])
    assert found.inconsistent == 0


def test_an_update_that_no_sum_includes_has_no_latency() -> None:
    """It is NaN: not zero, and not left out of the count."""
    found = latencies(TAKEN, NONE, SENT, [Arrival(10.5, 0, 5)])
    assert [math.isnan(one) for one in found.seconds] == [False, True, True, True, True]


def test_a_sum_of_no_moment_is_counted() -> None:
    """Between two readings (an old one out, the new one not in) a sum includes only what surely is in it."""
    found = latencies(TAKEN, NONE, SENT, [Arrival(10.5, 0, 11), Arrival(10.9, 0, 12)])
    assert found.inconsistent == 1
    assert found.seconds[[0, 2]].tolist() == pytest.approx([0.5, 0.7])


def test_what_was_summed_before_counts_for_the_base() -> None:
    """With a base, and updates that begin in the middle of an instance, the same values mean the same updates."""
    taken = UpdateSlice(1, TAKEN.steps, TAKEN.readings)  # the first of these updates is the second metric's
    found = latencies(taken, np.array([100, 50]), SENT, [Arrival(11.0, 1, 62), Arrival(11.0, 0, 103)])
    assert found.inconsistent == 0
    assert found.seconds.tolist() == pytest.approx([1.0, 0.9, 0.8, 0.7, math.nan], nan_ok=True)


def test_the_longest_gap_is_within_the_period() -> None:
    """It may be before the first sum or after the last one; sums outside of the period do not count."""
    arrivals = [Arrival(time_s, 0, 1) for time_s in (9.0, 10.5, 10.7, 12.0, 20.0)]
    assert longest_gap(arrivals, 10.0, 12.1) == pytest.approx(1.3)
    assert longest_gap(arrivals, 10.0, 15.0) == 3.0
    assert longest_gap([], 10.0, 15.0) == 5.0
