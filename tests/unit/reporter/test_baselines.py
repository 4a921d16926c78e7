"""Subtraction and addition of histograms, including their sketches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tallystream import MetricRegistry, record
from tallystream.baselines import add, by_identity, subtract
from tallystream.metrics.sketch import Sketch
from tallystream.testing import ManualClock

VALUES = st.lists(st.integers(-1000, 1000), max_size=50)


@given(VALUES, VALUES)
def test_subtraction_and_addition_are_inverse(before: list[int], after: list[int]) -> None:
    """subtract() leaves count, sum and sketch of the later values, and add() restores the total."""
    timer_clock = ManualClock()
    registry = MetricRegistry("app", clock=timer_clock)
    histogram = registry.histogram("h")
    for value in before:
        histogram.update(value)
    base = by_identity(registry.snapshot())
    for value in after:
        histogram.update(value)
    [total] = registry.snapshot()
    [later] = subtract([total], base)
    assert isinstance(later, record.Histogram)
    assert isinstance(total, record.Histogram)
    assert (later.count, later.sum) == (len(after), sum(after))
    if after:
        exact = Sketch()
        exact.add(after)
        assert later.sketch == exact.encode()
        assert add(later, base[later.identity]) == total
    else:
        assert (later.sketch, later.min, later.max) == (None, None, None)
