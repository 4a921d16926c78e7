"""Histograms and timers, by the values they show."""

from __future__ import annotations

import asyncio
import math
from decimal import Decimal
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream import ExponentiallyDecaying, MetricRegistry
from tallystream.metrics.sampling import DecayingReservoir, weighted_view
from tallystream.metrics.sketch import Sketch
from tallystream.testing import ManualClock


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=600))
def test_histogram_counts_everything(values: list[float]) -> None:
    """Count, sum, min and max are of all values, whatever the sample keeps."""
    histogram = MetricRegistry("app", clock=ManualClock()).histogram("h")
    for value in values:
        histogram.update(value)
    read = histogram.read()
    assert (read.count, read.min, read.max) == (len(values), min(values), max(values))
    assert read.sum == pytest.approx(math.fsum(values), rel=1e-9, abs=1e-3)


def test_histogram_view_of_few_values_is_exact(registry: MetricRegistry) -> None:
    """As long as all values fit in the sample, its quantiles are those of the values."""
    histogram = registry.histogram("h", sampling=ExponentiallyDecaying())
    assert histogram.view() is None
    for value in range(1, 1001):
        histogram.update(value)
    recent = histogram.view()
    assert recent is not None
    assert (recent.p50, recent.p75, recent.p95, recent.p99, recent.p999) == (500, 750, 950, 990, 999)
    assert recent.mean == pytest.approx(500.5)
    assert recent.stddev == pytest.approx(288.675, abs=0.01)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1.001e150, -1e200, 10**151])
def test_histogram_refuses_what_would_spoil_the_sum(registry: MetricRegistry, bad: float) -> None:
    """NaN, infinity and magnitudes above 1e150 are refused, and the message names the histogram."""
    with pytest.raises(ValueError, match="'h' can't take"):
        registry.histogram("h").update(bad)
    with pytest.raises(ValueError, match="'t' can't take"):
        registry.timer("t").update(bad)
    assert registry.histogram("h").count == registry.timer("t").count == 0


def test_histogram_takes_what_behaves_like_a_number(registry: MetricRegistry) -> None:
    """Decimals and fractions become floats, whole numbers stay whole; text and complex numbers are refused."""
    histogram = registry.histogram("h")
    for value in (Decimal("1.5"), Fraction(1, 4), True, 3, 2**60):
        histogram.update(value)  # type: ignore[arg-type]
    for broken in ("2", 1j, None):
        with pytest.raises(TypeError):
            histogram.update(broken)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'h' can't take"):
        histogram.update(10**400)
    read = histogram.read()
    assert (read.count, read.min, read.max, type(read.max)) == (5, 0.25, 2**60, int)
    assert registry.snapshot() == [read]


def test_old_values_give_way_to_recent_ones() -> None:
    """After an hour and as many new values as the sample holds, hardly an old value is left."""
    reservoir = DecayingReservoir(size=100, random=Random(1).random)
    reservoir.update([1.0] * 1000, 0.0)
    reservoir.update([2.0] * 100, 3601.0)
    sample = reservoir.sample()
    assert len(sample) == 100
    assert sum(value == 2.0 for value, _ in sample) >= 95
    found = weighted_view(sample)
    assert found is not None
    assert found.p50 == 2.0


def test_histogram_carries_a_sketch_of_all_values(registry: MetricRegistry) -> None:
    """The record's sketch has every value, more than the sample can hold, and its quantiles are within 0.5416 %."""
    histogram = registry.histogram("h")
    for value in range(1, 10_001):
        histogram.update(value)
    text = histogram.read().sketch
    assert text is not None
    sketch = Sketch.decode(text)
    assert sketch.count == 10_000 == histogram.sketch().count
    assert sketch.quantiles([0.5, 0.99]) == pytest.approx([5000, 9900], rel=0.005416)


def test_timer_takes_blocks_functions_and_failures(registry: MetricRegistry, clock: ManualClock) -> None:
    """time() and the decorator take what passes on the clock, also when the code raises; elapsed is there after."""
    timer = registry.timer("t")
    with timer.time() as timing:
        clock.advance(2)
    assert timing.elapsed == 2

    @timer
    def fail(seconds: float) -> None:
        """Fail after a while."""
        clock.advance(seconds)
        raise KeyError(seconds)

    with pytest.raises(KeyError):
        fail(3)
    assert fail.__doc__ == "Fail after a while."
    read = timer.read()
    assert (read.count, read.sum, read.min, read.max) == (2, 5, 2, 3)
    assert read.mean_rate == pytest.approx(2 / 5)
    with pytest.raises(ValueError, match="a duration is not negative"):
        timer.update(-0.1)


def test_timer_takes_coroutines_to_their_end(registry: MetricRegistry, clock: ManualClock) -> None:
    """The decorator of a coroutine function times what is awaited in it, not the making of it; async with works too."""
    timer = registry.timer("t")

    @timer
    async def work(seconds: float) -> str:
        await asyncio.sleep(0)
        clock.advance(seconds)
        return "done"

    async def main() -> str:
        made = work(3)
        clock.advance(100)
        async with timer.time() as timing:
            clock.advance(2)
        assert timing.elapsed == 2
        return await made

    assert asyncio.run(main()) == "done"
    read = timer.read()
    assert (read.count, read.sum, read.max) == (2, 5, 3)
