"""Mean and deviation that are kept up to date, against those of the pairs at hand."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystream.reporter._moments import Moments

SCALES = st.lists(st.sampled_from([1e-9, 1.0, 1e3, 1e9]), min_size=1, max_size=60)


@settings(max_examples=50, deadline=None)
@given(SCALES, st.integers())
def test_they_are_those_of_the_pairs_at_hand(scales: list[float], seed: int) -> None:
    """Whatever comes and goes, also values a billion times larger than what stays: as exact as summed up anew."""
    draw, moments, pairs = Random(seed), Moments(), list[tuple[float, float]]()
    for scale in scales:
        for _ in range(draw.randrange(1, 6)):
            pairs.append((draw.gauss(scale, scale / 3), math.exp(draw.uniform(0, 3))))
            moments.add(*pairs[-1])
        while len(pairs) > 8:
            moments.remove(*pairs.pop(draw.randrange(len(pairs))))
        values, weights = [value for value, _ in pairs], [weight for _, weight in pairs]
        total = math.fsum(weights)
        mean = math.fsum(map(math.prod, pairs)) / total
        deviation = math.sqrt(math.fsum(weight * (value - mean) ** 2 for value, weight in pairs) / total)
        assert moments.read(values, weights) == pytest.approx((mean, deviation), rel=1e-6, abs=1e-6 * abs(mean))


def test_they_are_summed_up_anew_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """After many changes rounding would add up: the sums begin anew from the pairs at hand."""
    monkeypatch.setattr("tallystream.reporter._moments.MOST_CHANGES", 10)
    moments = Moments()
    for _ in range(11):
        moments.add(1.0, 1.0)
    assert moments.read([5.0, 7.0], [1.0, 1.0]) == (6.0, 1.0)
