"""Subtraction and addition of histograms, including their sketches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream import MetricRegistry, record
from tallystream.baselines import add, by_identity, subtract
from tallystream.metric_types import CURRENT, TOTAL, TYPES
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


@pytest.mark.parametrize("kind", TYPES)
def test_every_field_that_only_grows_is_subtracted(kind: str) -> None:
    """Totals lack what earlier lives have published. Current values stay as they are."""
    fields = dict(TYPES[kind])
    base, total = (record.CLASSES[kind](name="n", **dict.fromkeys(fields, value)) for value in (2, 7))
    (later,) = subtract([total], by_identity([base]))
    for name, adds in fields.items():
        if adds == TOTAL:
            assert getattr(later, name) == 5
            assert getattr(add(later, base), name) == 7
        elif adds == CURRENT:
            assert getattr(later, name) == 7
