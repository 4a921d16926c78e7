"""The metric types, each by the values it shows."""

from __future__ import annotations

import asyncio
import itertools
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tallystream.reporter import (
    Counter,
    ExponentiallyDecaying,
    MetricRegistry,
    Sampling,
    SlidingTimeWindow,
    _ticks,
    record,
)
from tallystream.reporter.counter import BUFFER
from tallystream.reporter.decaying import DecayingReservoir
from tallystream.reporter.histogram import Held
from tallystream.reporter.reservoir import view
from tallystream.reporter.sketch import Sketch
from tallystream.reporter.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def registry(clock: ManualClock) -> MetricRegistry:
    return MetricRegistry("app", clock=clock)


def test_counter_grows_by_whole_numbers_only(registry: MetricRegistry) -> None:
    """inc() adds one, inc(n) adds n; a negative or broken number is refused, and the message names the metric."""
    counter = registry.counter("c")
    counter.inc()
    counter.inc(41)
    counter.inc(0)
    with pytest.raises(ValueError, match=r"'c' can't grow by -1; use registry\.updown"):
        counter.inc(-1)
    for broken in (1.5, 1.0, "1"):
        with pytest.raises(TypeError):
            counter.inc(broken)  # type: ignore[arg-type]
    assert counter.count == 42


def test_no_increment_is_lost_between_threads(registry: MetricRegistry) -> None:
    """Eight threads that count at once lose nothing, in any type that counts."""
    counter, updown, meter = registry.counter("c"), registry.updown("u"), registry.meter("m")
    histogram, timer = registry.histogram("h"), registry.timer("t")

    def work(_: int) -> None:
        for number in range(5_000):
            counter.inc()
            updown.inc(2)
            updown.dec()
            meter.mark()
            histogram.update(number)
            timer.update(0.5)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert counter.count == updown.value == meter.count == histogram.count == timer.count == 40_000
    assert histogram.read().sum == 8 * sum(range(5_000))


@pytest.mark.parametrize("has_gil", [True, False])
def test_counter_is_exact_while_it_is_read(has_gil: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readings taken while threads count never go back, and each has all that was counted before it began."""
    monkeypatch.setattr(_ticks, "HAS_GIL", has_gil)
    counter = Counter("c", {})
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    done = [0] * 4

    def work(number: int) -> None:
        for step in range(5_000):
            counter.inc()
            counter.inc(step)
            done[number] += 1 + step

    def watch(_: int) -> None:
        last = 0
        while sum(done) < 4 * sum(range(5_001)):
            known = sum(done)
            now = counter.count
            assert now >= max(known, last)
            last = now

    try:
        with ThreadPoolExecutor(6) as pool:
            watching = [pool.submit(watch, 0) for _ in range(2)]
            list(pool.map(work, range(4)))
            for watcher in watching:
                watcher.result()
    finally:
        sys.setswitchinterval(before)
    assert counter.count == 4 * sum(range(5_001))


@pytest.mark.parametrize("make", [_ticks.LockedTicks, itertools.count])
def test_ticks_are_read_without_a_step(make: Callable[[], Iterator[int]]) -> None:
    """With and without a GIL, reading changes nothing, and large numbers are read whole."""
    ticks = make()
    assert [next(ticks), next(ticks), _ticks.ticked(ticks), _ticks.ticked(ticks), next(ticks)] == [0, 1, 2, 2, 2]
    assert _ticks.ticked(itertools.count(2**63)) == 2**63


def test_many_amounts_are_kept_in_little_space(registry: MetricRegistry) -> None:
    """Amounts that nobody reads are added up all the same, so they take no memory."""
    counter = registry.counter("c")
    for _ in range(10_000):
        counter.inc(2)
    assert len(counter._amounts) < BUFFER
    assert counter.count == 20_000


def test_counting_while_the_counter_is_read_does_not_wait(registry: MetricRegistry) -> None:
    """inc() in a signal handler or finalizer that interrupts a reading of the same counter goes on, and counts."""
    counter = registry.counter("c")
    with counter._lock:
        for _ in range(2 * BUFFER):
            counter.inc()
            counter.inc(2)
    assert counter.count == 6 * BUFFER


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
    """A gauge that raises or gives no finite number is left out of the snapshot, and logged once; the rest is there."""
    registry.counter("c").inc()
    registry.gauge(f"gauge.{bad}", lambda: float(bad))
    assert [metric.name for metric in registry.snapshot()] == ["c"]
    registry.snapshot()
    assert caplog.text.count(f"'gauge.{bad}' is left out") == 1


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
    histogram = registry.histogram("h")
    assert histogram.view() is None
    for value in range(1, 1001):
        histogram.update(value)
    recent = histogram.view()
    assert recent is not None
    assert (recent.p50, recent.p75, recent.p95, recent.p99, recent.p999) == (500, 750, 950, 990, 999)
    assert recent.mean == pytest.approx(500.5)
    assert recent.stddev == pytest.approx(288.675, abs=0.01)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_histogram_refuses_what_would_spoil_the_sum(registry: MetricRegistry, bad: float) -> None:
    """NaN and infinity are refused, and the message names the histogram."""
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
    """After an hour's rescaling and as many new values as the sample holds, hardly an old value is left."""
    reservoir = DecayingReservoir(0.0, size=100, random=Random(1).random)
    reservoir.update([1.0] * 1000, 0.0)
    reservoir.update([2.0] * 100, 3601.0)
    sample = reservoir.sample()
    assert len(sample) == 100
    assert sum(value == 2.0 for value, _ in sample) >= 95
    found = view(sample)
    assert found is not None
    assert found.p50 == 2.0


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


def test_position_keeps_the_furthest_on_each_side(registry: MetricRegistry) -> None:
    """Start is the lowest offset ever covered, position the highest; nothing is reported before the first."""
    position = registry.position("flights", 3)
    assert position.read() is None
    assert position.position is None
    position.cover(10, 20)
    position.cover(5, 12)
    position.cover(20, 30)
    assert (position.start, position.position) == (5, 30)
    assert position.tags == {"partition": "3", "topic": "flights"}
    for start, end in ((-1, 3), (4, 3)):
        with pytest.raises(ValueError, match="0 <= start <= position"):
            position.cover(start, end)


def test_histogram_carries_a_sketch_of_all_values(registry: MetricRegistry) -> None:
    """The record's sketch has every value, more than the sample can hold, and its quantiles are within 1 %."""
    histogram = registry.histogram("h")
    for value in range(1, 10_001):
        histogram.update(value)
    text = histogram.read().sketch
    assert text is not None
    sketch = Sketch.decode(text)
    assert sketch.count == 10_000 == histogram.sketch().count
    assert sketch.quantiles([0.5, 0.99]) == pytest.approx([5000, 9900], rel=0.0101)


def test_a_snapshot_is_of_the_moment_of_its_capture(registry: MetricRegistry) -> None:
    """What is updated between capture and the costly part is not in it, and the next reading has it."""
    histogram, timer = registry.histogram("h"), registry.timer("t")
    histogram.update(1)
    timer.update(1)
    held, held_timer = histogram.capture(), timer.capture()
    histogram.update(2)
    timer.update(2)
    early, early_timer = histogram.captured(held), timer.captured(held_timer)
    assert isinstance(early, record.Histogram)
    assert isinstance(early_timer, record.Timer)
    for found in (early, early_timer):
        assert (found.count, found.sum, found.max, found.p999) == (1, 1, 1, 1)
        assert Sketch.decode(found.sketch or "").count == 1
    assert histogram.read().p999 == timer.read().p999 == 2
    assert histogram.read() == histogram.read()


@pytest.mark.parametrize("sampling", [ExponentiallyDecaying(), SlidingTimeWindow(60)], ids=repr)
@pytest.mark.parametrize("kind", ["histogram", "timer"])
def test_whoever_comes_between_a_capture_and_its_end_changes_nothing_of_it(
    clock: ManualClock, sampling: Sampling, kind: str
) -> None:
    """A full buffer, a reader, another capture, a tick of the rates: each works the captured values in first."""
    metric = getattr(MetricRegistry("app", clock=clock, sampling=sampling), kind)("m")
    between: list[Callable[[], object]] = [
        lambda: [metric.update(1000) for _ in range(600)],
        lambda: metric.count,
        metric.capture,
        metric.view,
        lambda: clock.advance(6) or metric.update(1000),
    ]
    wanted = 0
    for come in between:
        metric.update(1)
        wanted = metric.count
        metric.update(1)
        held = metric.capture()
        metric.update(1000)
        come()
        found = metric.captured(held)
        assert found.count == Sketch.decode(found.sketch).count == wanted + 1
        assert (found.max == 1000) == (wanted > 1)
        assert metric.captured(held) is found
    metric.update(2)
    assert metric.read().count == metric.count == wanted + 4


def test_counters_and_meters_are_of_the_moment_of_their_capture(registry: MetricRegistry, clock: ManualClock) -> None:
    """What is counted, and what ticks, between capture and record is not in it; amounts above one are."""
    counter, meter = registry.counter("c"), registry.meter("m")
    clock.advance(2)
    counter.inc()
    counter.inc(41)
    meter.mark(6)
    held, held_meter = counter.capture(), meter.capture()
    counter.inc()
    counter.inc(7)
    clock.advance(10)
    meter.mark(100)
    meter.get_ready()
    assert counter.captured(held).count == 42
    found = meter.captured(held_meter)
    assert (found.count, found.mean_rate, found.m1_rate) == (6, 3, 0)
    assert (counter.read().count, meter.read().count) == (50, 106)
    assert meter.read().m1_rate > 0


@pytest.mark.parametrize("sampling", [ExponentiallyDecaying(), SlidingTimeWindow(60)], ids=repr)
@pytest.mark.parametrize("kind", ["histogram", "timer"])
def test_a_snapshot_without_views_has_what_merges(clock: ManualClock, sampling: Sampling, kind: str) -> None:
    """Count, sum, min, max and sketch are there, nothing of the sample; whoever wants that gets it all the same."""
    registry = MetricRegistry("app", clock=clock, sampling=sampling)
    metric = getattr(registry, kind)("m")
    views = {"mean", "stddev", "p50", "p75", "p95", "p98", "p99", "p999"}
    for value in (1, 3, 2):
        metric.update(value)
        for wanted in (False, True, False, False, True):
            [found] = registry.snapshot(views=wanted)
            assert isinstance(found, record.Histogram)
            assert (found.count, found.sum, found.min, found.max) == (metric.count, *_of(value))
            assert Sketch.decode(found.sketch or "").count == found.count
            assert {name for name in views if getattr(found, name) is not None} == (views if wanted else set())
    assert registry.snapshot() == [metric.read()]


def _of(last: int) -> tuple[int, int, int]:
    taken = [1, 3, 2][: [1, 3, 2].index(last) + 1]
    return sum(taken), min(taken), max(taken)


def test_a_histogram_that_did_not_change_is_not_read_again(registry: MetricRegistry) -> None:
    """Its capture is the record of the last time, until a value comes."""
    histogram = registry.histogram("h")
    histogram.update(1)
    first = histogram.captured(histogram.capture())
    assert histogram.capture() is first
    assert histogram.read() == first
    histogram.update(1)
    again = histogram.capture()
    assert isinstance(again, Held)
    assert histogram.captured(again) != first


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
