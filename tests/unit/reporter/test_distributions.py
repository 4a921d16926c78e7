"""Histograms and timers: their values, their sums and their samples."""

from __future__ import annotations

import math
from contextlib import suppress
from fractions import Fraction
from random import Random
from threading import Lock
from types import SimpleNamespace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tallystream import KafkaReporter, MetricRegistry
from tallystream.metric_types import QUANTILES
from tallystream.metrics.histogram import BUFFER, MAX_PENDING
from tallystream.metrics.sampling import DecayingReservoir, weighted_view
from tallystream.testing import InMemoryReporter, ManualClock


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1.001e150, -1e200, 10**151])
def test_a_histogram_rejects_values_that_are_not_finite_or_too_large(registry: MetricRegistry, bad: float) -> None:
    """The error for NaN, infinity or a magnitude above 1e150 names the histogram."""
    with pytest.raises(ValueError, match="'h' can't take"):
        registry.histogram("h").update(bad)
    with pytest.raises(ValueError, match="'t' can't take"):
        registry.timer("t").update(bad)
    assert registry.histogram("h").count == registry.timer("t").count == 0


def test_a_timer_measures_blocks(registry: MetricRegistry, clock: ManualClock) -> None:
    """Those that raise, too. `elapsed` is set afterwards."""
    timer = registry.timer("t")
    with timer.time() as timing:
        clock.advance(2)
    with suppress(KeyError), timer.time():
        clock.advance(3)
        raise KeyError
    assert timing.elapsed == 2
    read = timer.read()
    assert (read.count, read.sum, read.min, read.max) == (2, 5, 2, 3)
    assert read.mean_rate == pytest.approx(2 / 5)
    with pytest.raises(ValueError, match="a duration is not negative"):
        timer.update(-0.1)


@pytest.mark.parametrize("kind", ["histogram", "timer"])
def test_an_update_waits_only_if_many_values_are_buffered(registry: MetricRegistry, kind: str) -> None:
    """While a thread processes the buffer, others add to it up to a limit, so that memory is limited."""
    waits: list[bool] = []

    def acquire(wait: bool) -> bool:
        waits.append(wait)
        return wait  # another thread holds it until it is waited for

    metric = getattr(registry, kind)("d")
    metric._lock = SimpleNamespace(acquire=acquire, release=lambda: None)
    for _ in range(MAX_PENDING):
        metric.update(1.0)
    assert waits == [False] * (MAX_PENDING - BUFFER) + [True]
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


PACED = st.lists(st.tuples(st.floats(0, 6000), st.integers(0, 120)), max_size=20)


@given(PACED, st.integers(1, 50), st.integers())
def test_a_decaying_sample_has_the_highest_priorities(paced: list[tuple[float, int]], size: int, seed: int) -> None:
    """Over hours, it keeps the values with the formula's highest priorities. The newest one has the weight 1."""
    reservoir, draw = DecayingReservoir(size, 0.015, Random(seed).random), Random(seed).random
    now, everything = 0.0, list[tuple[float, float, float]]()
    for pause, number in paced:
        now += pause
        batch = [float(len(everything) + i) for i in range(number)]
        reservoir.update(batch, now)
        # The logarithm of exp(alpha * time) / u.
        everything += [(0.015 * now - math.log(1 - draw()), now, value) for value in batch]
    kept = sorted(everything)[-size:]
    newest = max((when for _, when, _ in kept), default=0.0)
    weights = {value: math.exp(0.015 * (when - newest)) for _, when, value in kept}
    assert dict(reservoir.sample()) == pytest.approx(weights, rel=1e-6)


VALUES = st.one_of(st.floats(-1e6, 1e6), st.sampled_from([-1e6, 0.0, 1e6]))


@given(st.lists(st.tuples(VALUES, st.floats(1e-9, 1)), max_size=60))
@example([(0.0, 0.5), (1.0, 0.5)])  # exactly half of the weight is on zero
def test_a_view_has_the_statistics_of_its_pairs(pairs: list[tuple[float, float]]) -> None:
    """Each value counts with its weight, also if several are equal."""
    found = weighted_view(pairs)
    assert (found is None) == (not pairs)
    if found:
        total = sum(weight for _, weight in pairs)
        for name, share in QUANTILES.items():
            # If the weights up to a value are exactly the share, rounding decides between it and the next one.
            at = getattr(found, name)
            assert sum(weight for value, weight in pairs if value < at) <= (share + 1e-9) * total
            assert sum(weight for value, weight in pairs if value <= at) >= (share - 1e-9) * total
        mean = sum(value * weight for value, weight in pairs) / total
        deviation = math.sqrt(sum(weight * (value - mean) ** 2 for value, weight in pairs) / total)
        assert (found.mean, found.stddev) == pytest.approx((mean, deviation), rel=1e-6, abs=1e-3)


@pytest.mark.parametrize("make", ["histogram", "timer"])
def test_without_a_sample_the_view_is_computed_from_the_sketch(make: str) -> None:
    """It is of all values, each quantile within 1 %."""
    clock = ManualClock()
    registry = MetricRegistry("a", clock=clock)
    metric = getattr(registry, make)("m")
    assert metric.view() is metric.read().p50 is None
    metric.update(3.3)
    assert metric.view() == (3.3, 0, 3.3, 3.3, 3.3, 3.3, 3.3, 3.3)
    for number in range(1, 10_001):
        metric.update(number)
        clock.advance(1)
    found = metric.view()
    assert found.mean == metric.read().mean == metric.read().sum / 10_001
    assert found.stddev == pytest.approx(2886.75, rel=0.01)
    assert found[2:] == pytest.approx([5000, 7500, 9500, 9800, 9900, 9990], rel=0.0109)
    assert max(found) <= 10_000


def test_samples_are_kept_once_a_reporter_shows_them() -> None:
    """Also in metrics that are created later and after a fork; not for a reporter that shows none."""
    registry = MetricRegistry("a", clock=ManualClock())
    KafkaReporter(registry, bootstrap_servers="b", instance="i", topic="other")
    early = registry.histogram("early")
    early.update(7)
    assert early.view() == (7, 0, 7, 7, 7, 7, 7, 7)
    InMemoryReporter(registry)
    late = registry.child("child").timer("late")
    assert early.view() is early.read().p50 is late.view() is None
    for metric in (early, late):
        for number in range(1, 1001):
            metric.update(number)
        assert metric.read().p50 == 500
        metric.reset_after_fork()
        for value in (1.0, 2.0, 3.0):
            metric.update(value)
        assert metric.read().p50 == 2.0  # not within 1 %
