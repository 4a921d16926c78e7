"""The metrics of an application: counters, gauges, meters and positions."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from threading import Thread
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream import MetricRegistry, record
from tallystream.metrics.histogram import MAX_PENDING
from tallystream.testing import ManualClock


def test_a_counter_grows_by_whole_numbers_only(registry: MetricRegistry) -> None:
    """inc() adds one and inc(n) adds n; the error for a negative number or a fraction names the metric."""
    counter = registry.counter("c")
    counter.inc()
    counter.inc(41)
    counter.inc(0)
    with pytest.raises(ValueError, match=r"'c' can't grow by -1; use registry\.updown"):
        counter.inc(-1)
    for broken in (1.5, 1.0, "1", Decimal("1.5"), Decimal("inf"), Decimal("nan"), None):
        with pytest.raises(TypeError):
            counter.inc(broken)  # type: ignore[arg-type]
    assert counter.count == 42


@pytest.mark.parametrize("change", [math.nan, math.inf, -math.inf, -1e308, Decimal("nan")])
def test_an_updown_stays_finite(registry: MetricRegistry, change: Any) -> None:
    """A change to NaN or beyond the range of floats is an error that names the metric; the value is unchanged."""
    updown = registry.updown("u")
    updown.dec(1.5e308)
    for update in (updown.inc, lambda n: updown.dec(-n)):
        with pytest.raises(ValueError, match=r"^the up-down counter 'u' can't change by -?(nan|inf|1e\+308) to"):
            update(change)
    assert updown.value == -1.5e308
    updown.inc(1.5e308)
    updown.inc(5)
    assert updown.value == 5


def test_no_increment_is_lost_between_threads(registry: MetricRegistry) -> None:
    """For every type that counts. Readings of a counter never fall, and have all that was counted before they began."""
    counter, updown, meter = registry.counter("c"), registry.updown("u"), registry.meter("m")
    histogram, timer = registry.histogram("h"), registry.timer("t")
    done = [0] * 4

    def work(number: int) -> None:
        for step in range(5_000):
            counter.inc()
            counter.inc(step)
            done[number] += 1 + step
            updown.inc(2)
            updown.dec()
            meter.mark()
            histogram.update(step)
            timer.update(0.5)

    def watch() -> None:
        last = 0
        while sum(done) < 4 * sum(range(5_001)):
            known = sum(done)
            now = counter.count
            assert now >= max(known, last)
            last = now

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(6) as pool:
            watching = [pool.submit(watch) for _ in range(2)]
            list(pool.map(work, range(4)))
            for watcher in watching:
                watcher.result()
    finally:
        sys.setswitchinterval(before)
    assert counter.count == 4 * sum(range(5_001))
    assert updown.value == meter.count == histogram.count == timer.count == 20_000
    assert histogram.read().sum == 4 * sum(range(5_000))


def test_each_failing_gauge_is_logged_once(registry: MetricRegistry, caplog: pytest.LogCaptureFixture) -> None:
    """Two gauges with the same name and different tags are logged once each."""
    for tags in ({"disk": "a"}, {"disk": "b"}):
        registry.gauge("each.set", tags=tags).set(math.nan)
        registry.gauge("each.asked", lambda: 1 / 0, tags=tags)
    for _ in range(2):
        assert registry.snapshot() == []
    for name in ("each.set", "each.asked"):
        for disk in "ab":
            assert caplog.text.count(f"gauge '{name}' {{'disk': '{disk}'}} is skipped") == 1


def raising(error: BaseException) -> Callable[[], float]:
    """Return a gauge's function that raises the error."""

    def function() -> float:
        raise error

    return function


class PanicException(BaseException):
    """What an extension in Rust raises if its code panics."""


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(1), KeyboardInterrupt(), PanicException("no")])
def test_a_gauge_that_raises_no_exception_fails_alone(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """In a thread, only the gauge is skipped, and this is logged, whatever its function raises."""
    registry = MetricRegistry("app")
    registry.gauge("ends", raising(error), tags={"by": type(error).__name__})
    registry.counter("neighbour").inc()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(registry.snapshot).result() == [record.Counter(name="neighbour", count=1)]
    assert caplog.text.count(f"'ends' {{'by': '{type(error).__name__}'}} is skipped") == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_signal_ends_a_snapshot(registry: MetricRegistry, error: type[BaseException]) -> None:
    """In the main thread, the handler of a signal may have raised these, so a snapshot raises them too."""
    registry.gauge("interrupted", raising(error()))
    with pytest.raises(error):
        registry.snapshot()


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
    for start, end in ((-1, 3), (4, 3), (0, 2**63)):
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


def test_finalizers_may_update_a_histogram_that_this_thread_reads() -> None:
    """There may be many: the garbage collector finalizes all that it finds, and their values wait for the next call."""
    finalized: list[int] = []

    class Collecting(ManualClock):
        def monotonic(self) -> float:
            if not finalized:
                finalized.extend(range(2 * MAX_PENDING))
                for _ in finalized:
                    histogram.update(1)
            return super().monotonic()

    registry = MetricRegistry("app", clock=Collecting())
    registry.keep_samples()
    histogram = registry.histogram("h")
    histogram.update(1)
    reader = Thread(target=histogram.view, daemon=True)
    reader.start()
    reader.join(10)
    assert not reader.is_alive()
    assert histogram.count == 1 + 2 * MAX_PENDING
