"""Gauges, meters and positions."""

from __future__ import annotations

from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream import MetricRegistry
from tallystream.testing import ManualClock


def test_a_gauge_is_set_or_computed(registry: MetricRegistry) -> None:
    """A gauge has no value before it is set; one with a function calls it each time and can't be set."""
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


def test_rates_equal_dropwizards(registry: MetricRegistry, clock: ManualClock) -> None:
    """Three events, a tick and a minute without events give the values of Dropwizard's EWMA tests."""
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
def test_the_rates_do_not_depend_on_how_often_they_are_read(events: list[tuple[int, int]]) -> None:
    """A meter that is read every second and one that is read at the end have equal rates."""
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


def test_a_meter_rejects_negative_numbers(registry: MetricRegistry) -> None:
    """The error for a negative number names the meter."""
    with pytest.raises(ValueError, match="'m' can't take -2 events"):
        registry.meter("m").mark(-2)


def test_a_position_keeps_the_lowest_start_and_the_highest_end(registry: MetricRegistry) -> None:
    """Nothing is reported before the first offset."""
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


def test_an_update_does_not_wait_for_the_rates(registry: MetricRegistry, clock: ManualClock) -> None:
    """A finalizer may update a meter or timer that this thread reads, also when the rates are due.

    The next call computes them.
    """
    meter, timer = registry.meter("m"), registry.timer("t")
    for update in (meter.mark, lambda: timer.update(0.5)):
        for _ in range(9):
            update()
    clock.advance(5)

    def finalize() -> None:
        with meter._lock, timer._lock:
            meter.mark()
            timer.update(0.5)

    thread = Thread(target=finalize, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert meter.rates().m1_rate == timer.rates().m1_rate == 2
    assert meter.count == timer.count == 10
