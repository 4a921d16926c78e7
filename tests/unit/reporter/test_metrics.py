"""Gauges, meters and positions, by the values they show."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream import MetricRegistry
from tallystream.testing import ManualClock


def test_gauge_is_set_or_computed(registry: MetricRegistry) -> None:
    """A gauge has no value before it is set; one with a function is asked each time and can't be set."""
    gauge = registry.gauge("g")
    assert gauge.value is None
    assert gauge.read() is None
    gauge.set(3)
    assert gauge.value == 3
    numbers = iter([1, 2])
    computed = registry.gauge("f", lambda: next(numbers))
    assert [computed.value, computed.value] == [1, 2]
    with pytest.raises(TypeError, match="'f' is computed"):
        computed.set(1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, "fails"])
def test_a_bad_gauge_is_left_out_and_its_neighbours_are_not(
    registry: MetricRegistry, bad: float | str, caplog: pytest.LogCaptureFixture
) -> None:
    """A gauge that raises or gives no finite number is skipped of the snapshot, and logged once; the rest is there."""
    registry.counter("c").inc()
    registry.gauge(f"gauge.{bad}", lambda: float(bad))
    assert [metric.name for metric in registry.snapshot()] == ["c"]
    registry.snapshot()
    assert caplog.text.count(f"'gauge.{bad}' is skipped") == 1


def test_meter_rates_are_dropwizards(registry: MetricRegistry, clock: ManualClock) -> None:
    """Three events and a tick, then a minute of silence: the values of Dropwizard's own EWMA tests."""
    meter = registry.meter("m")
    meter.mark(3)
    assert meter.rates() == (0.0, 0.0, 0.0, 0.0)
    clock.advance(5.1)
    assert meter.rates()[1:] == pytest.approx((0.6, 0.6, 0.6))
    clock.advance(60)
    assert meter.rates()[1:] == pytest.approx((0.22072766, 0.49123845, 0.56130419))
    clock.advance(60)
    assert meter.rates().m1_rate == pytest.approx(0.08120117)
    assert meter.rates().mean_rate == pytest.approx(3 / 125.1)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5)), max_size=30))
def test_idle_ticks_at_once_equal_idle_ticks_one_by_one(events: list[tuple[int, int]]) -> None:
    """A meter that nobody looks at and one that is read every second show the same rates."""
    clock = ManualClock()
    registry = MetricRegistry("a", clock=clock)
    unseen, watched = registry.meter("unseen"), registry.meter("watched")
    for pause, n in events:
        for _ in range(pause):
            clock.advance(1)
            watched.rates()
        unseen.mark(n)
        watched.mark(n)
    assert unseen.rates() == pytest.approx(watched.rates(), rel=1e-9, abs=1e-12)


def test_meter_refuses_negative_numbers(registry: MetricRegistry) -> None:
    """Events can't be taken back."""
    with pytest.raises(ValueError, match="'m' can't take -2 events"):
        registry.meter("m").mark(-2)


def test_position_keeps_the_furthest_on_each_side(registry: MetricRegistry) -> None:
    """Start is the lowest offset ever covered, position the highest; nothing is reported before the first."""
    position = registry.position("flights", 3)
    assert position.read() is None
    assert position.position is None
    position.advance(10, 20)
    position.advance(5, 12)
    position.advance(20, 30)
    assert (position.start, position.position) == (5, 30)
    assert position.tags == {"partition": "3", "topic": "flights"}
    for start, end in ((-1, 3), (4, 3)):
        with pytest.raises(ValueError, match="0 <= start <= position"):
            position.advance(start, end)
