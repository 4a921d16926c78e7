"""How metrics and registries differ from pyformance's."""

from __future__ import annotations

import asyncio
import math
import random
import sys
import threading
import time
from typing import Any

import pytest

from support.pyformances import Clock, ours, real
from tallystream import record


def hammer(*works: Any) -> None:
    """Run each function in its own thread, all at the same time, with frequent switches between the threads."""
    barrier, before = threading.Barrier(len(works)), sys.getswitchinterval()
    failed: list[BaseException] = []

    def run(work: Any) -> None:
        barrier.wait()
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - asserted below
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert failed == []


def test_threads_get_one_metric_and_lose_no_count() -> None:
    """Threads that request a new metric at once get one object, so that no count is lost."""
    registry = ours.MetricsRegistry()
    keys = [str(number) for number in range(300)]

    def count() -> None:
        for key in keys:
            registry.counter(key).inc()
            registry.histogram(key).add(1)
            registry.meter(key).mark()

    hammer(*[count] * 8)
    for key in keys:
        assert registry.counter(key).get_count() == 8
        assert registry.histogram(key).get_count() == registry.meter(key).get_count() == 8


def test_a_metric_is_created_once() -> None:
    """While one thread creates a metric, the others that request it wait."""
    free: list[bool] = []

    class Registry(ours.MetricsRegistry):
        def create_sink(self) -> None:
            thread = threading.Thread(target=lambda: free.append(self._making.acquire(blocking=False)))
            thread.start()
            thread.join()

    registry = Registry()
    registry.timer("t")
    assert free == [False]
    registry.timer("t")
    assert free == [False]


def test_an_interrupted_request_returns_the_same_metric() -> None:
    """A finalizer or signal handler that interrupts the creation of a metric gets the same object."""

    class Registry(ours.MetricsRegistry):
        found: Any = None

        def create_sink(self) -> None:
            if self.found is None:
                self.found = "interrupted"
                self.found = self.timer("t")

    registry = Registry()
    assert registry.timer("t") is registry.found
    assert registry.timer("t") is registry.found


def test_create_sink_may_request_metrics() -> None:
    """Creating a metric may create another one, without a deadlock."""

    class Registry(ours.MetricsRegistry):
        def create_sink(self) -> None:
            self.counter("sinks").inc()

    registry = Registry()
    registry.timer("t")
    assert registry.counter("sinks").get_count() == 1


def test_snapshots_while_values_are_added() -> None:
    """A snapshot succeeds while other threads add values."""
    registry = ours.MetricsRegistry()
    histogram = registry.histogram("h")

    def add() -> None:
        for value in range(3000):
            histogram.add(value)

    def look() -> None:
        for _ in range(100):
            histogram.get_snapshot()
            registry.dump_metrics()
            registry.tallystream.snapshot()

    hammer(add, add, look)
    assert histogram.get_count() == 6000


def test_the_mean_rate_is_zero_if_no_time_has_passed() -> None:
    """The real pyformance raises ZeroDivisionError, so that the complete dump fails."""
    for library in (real, ours):
        registry = library.MetricsRegistry(Clock())
        registry.meter("m").mark()
        if library is real:
            with pytest.raises(ZeroDivisionError):
                registry.dump_metrics()
        else:
            assert registry.dump_metrics()["m"]["mean_rate"] == 0


def test_the_variance_after_a_mean_of_minus_one() -> None:
    """In pyformance a mean of -1 means that there are no values, so the variance starts again."""
    variances = []
    for library in (real, ours):
        histogram = library.meters.Histogram()
        for value in (-1, 5):
            histogram.add(value)
        variances.append(histogram.get_var())
    assert variances == [0.0, 18.0]


@pytest.mark.parametrize(("value", "least", "greatest"), [(3e9, 2147483647.0, 3e9), (-3e9, -3e9, -2147483647.0)])
def test_min_and_max_outside_32_bits(value: float, least: float, greatest: float) -> None:
    """The real pyformance's min and max start at the bounds of 32 bits, and stay there for values outside them."""
    theirs, mine = real.meters.Histogram(), ours.meters.Histogram()
    for histogram in (theirs, mine):
        histogram.add(value)
    assert (theirs.get_min(), theirs.get_max()) == (least, greatest)
    assert (mine.get_min(), mine.get_max()) == (value, value)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_counter_stays_finite(value: float, log: pytest.LogCaptureFixture) -> None:
    """In pyformance a counter is NaN or infinite forever; Tallystream skips and logs the change."""
    theirs, mine = real.meters.Counter(), ours.MetricsRegistry().counter("c")
    for counter in (theirs, mine):
        counter.inc(3)
        for change in (counter.inc, counter.dec):
            change(value)
    assert not math.isfinite(theirs.get_count())
    assert mine.get_count() == 3
    assert "'c' skips a change: " in log.text
    assert mine.tallystream_read("c", {}) == record.Counter(name="c", count=3)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 2.0**63, 2**63, 10**400, -(10**400)])
@pytest.mark.parametrize("rest", [0, 0.5])
def test_a_meter_stays_finite(value: float, rest: float, log: pytest.LogCaptureFixture) -> None:
    """In pyformance NaN or infinity makes a meter useless forever; Tallystream skips and logs the mark."""
    theirs, mine = real.meters.Meter(Clock()), ours.MetricsRegistry(Clock()).meter("m")
    mine.mark(3 + rest)
    mine.mark(value)
    assert mine.get_count() == 3 + rest
    assert "'m' skips a mark: " in log.text
    mine.mark(1)
    assert (mine.get_count(), mine.tallystream_read("m", {}).count) == (4 + rest, 4)
    if isinstance(value, float):
        theirs.mark(value)
        theirs.mark(1)
        assert theirs.get_count() == pytest.approx(value, nan_ok=True)


def test_a_value_that_is_not_a_number_changes_nothing() -> None:
    """The real pyformance counts and samples the value before it raises the TypeError."""
    counts = []
    for library in (real, ours):
        histogram = library.meters.Histogram()
        histogram.add(1)
        with pytest.raises(TypeError):
            histogram.add("2")
        counts.append((histogram.get_count(), histogram.sample.get_size()))
    assert counts == [(2, 2), (1, 1)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_skipped(value: float) -> None:
    """In pyformance one NaN makes sum, mean and variance NaN forever; Tallystream skips and logs it."""
    theirs, mine = real.meters.Histogram(), ours.meters.Histogram()
    for histogram in (theirs, mine):
        for one in (1, value, 3):
            histogram.add(one)
    assert not math.isfinite(theirs.get_mean())
    assert (mine.get_mean(), mine.get_count()) == (2, 2)


def test_durations_do_not_depend_on_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real pyformance uses the wall clock; Tallystream a monotonic one, unless a clock is given."""
    now = iter(range(10_000, 0, -1))
    monkeypatch.setattr(time, "time", lambda: next(now))
    counts = []
    for library in (real, ours):
        timer = library.meters.Timer()
        with timer.time():
            pass
        counts.append(timer.get_count())
    assert counts == [0, 1]


def test_with_returns_the_timing() -> None:
    """`with timer.time() as timing` gives None in pyformance."""
    clock = Clock()
    with real.meters.Timer(clock=clock).time() as nothing:
        assert nothing is None
    with ours.meters.Timer(clock=clock).time() as timing:
        clock.add(2)
        assert timing.stop() == 2


def test_positional_arguments_of_a_timing_reach_the_signal() -> None:
    """In pyformance the timed block fails, since blinker rejects a second sender."""
    signals = []

    def receive(sender: Any, **more: Any) -> None:
        signals.append(more)

    for library in (real, ours):
        clock = Clock()
        with library.call_too_long.connected_to(receive):
            context = library.meters.Timer(threshold=1, clock=clock).time("url")
            clock.add(2)
            if library is real:
                with pytest.raises(TypeError):
                    context.stop()
            else:
                context.stop()
    assert signals == [{"args": ("url",), "elapsed": 2}]


def test_hist_calls_adds_numbers() -> None:
    """In pyformance hist_calls calls a method that histograms do not have."""

    def seven() -> int:
        return 7

    with pytest.raises(AttributeError):
        real.hist_calls(seven)()
    registry = ours.MetricsRegistry()
    assert ours.hist_calls(registry=registry)(seven)() == 7
    (values,) = registry.dump_metrics().values()
    assert (values["count"], values["avg"]) == (1, 7)


def test_coroutines_are_measured_to_their_end() -> None:
    """The real pyformance times the creation of a coroutine, and hist_calls sees no number."""
    clock = Clock()
    registry = ours.MetricsRegistry(clock)

    @ours.time_calls(metric_name="time", registry=registry)
    @ours.hist_calls(metric_name="hist", registry=registry)
    @ours.count_calls(metric_name="calls", registry=registry, tags={"kind": "async"})
    @ours.meter_calls(metric_name="meter", registry=registry)
    async def work() -> int:
        await asyncio.sleep(0)
        clock.add(3)
        return 4

    assert asyncio.run(work()) == 4
    dumped = registry.dump_metrics()
    assert (dumped["time"]["sum"], dumped["hist"]["avg"]) == (3, 4)
    assert (dumped["calls{kind=async}"], dumped["meter"]["count"]) == ({"count": 1}, 1)


def test_a_steep_decay_does_not_overflow() -> None:
    """In pyformance weights exceed the range of floats after 709 / alpha seconds, and add() fails."""
    for library in (real, ours):
        clock = Clock()
        histogram = library.meters.Histogram(alpha=0.99, size=2, clock=clock)
        histogram.add(1)
        clock.add(1000)
        if library is real:
            with pytest.raises(OverflowError):
                histogram.add(2)
        else:
            histogram.add(2)
            histogram.add(3)
            assert histogram.get_snapshot().values == [2, 3]


def test_a_random_number_of_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """In pyformance add() divides by it."""
    monkeypatch.setattr(random, "random", lambda: 0.0)
    with pytest.raises(ZeroDivisionError):
        real.meters.Histogram().add(1)
    histogram = ours.meters.Histogram()
    histogram.add(1)
    assert histogram.get_snapshot().values == [1]


def test_a_sliding_window_has_a_size_limit() -> None:
    """The real pyformance removes values only when it makes a snapshot, so memory grows."""
    sizes = []
    for library in (real, ours):
        clock = Clock()
        sample = getattr(library.stats, "samples", library.stats).SlidingTimeWindowSample(window=10, clock=clock)
        for value in range(20_000):
            sample.update(value)
        sizes.append(sample.get_snapshot().get_size())
    assert sizes == [20_000, 10_000]


def test_a_gauge_that_fails_hides_no_other_metric(log: pytest.LogCaptureFixture) -> None:
    """In pyformance the complete dump fails; Tallystream skips and logs the gauge."""

    def fail() -> float:
        raise RuntimeError("the queue is gone")

    for library in (real, ours):
        registry = library.MetricsRegistry()
        registry.counter("c").inc()
        registry.gauge("failing", fail)
        with pytest.raises(RuntimeError, match="the queue"):
            registry.get_metrics("failing")
        if library is real:
            with pytest.raises(RuntimeError, match="the queue"):
                registry.dump_metrics()
        else:
            assert registry.dump_metrics() == {"c": {"count": 1}}
            assert "'failing' is skipped in this dump" in log.text


def test_a_gauge_that_raises_no_exception_hides_no_other_metric(log: pytest.LogCaptureFixture) -> None:
    """Also if its function raises what is no Exception; only what the handler of a signal may raise passes."""

    def end() -> float:
        raise error

    registry = ours.MetricsRegistry()
    registry.counter("c").inc()
    registry.gauge("ending", end)
    error: BaseException = asyncio.CancelledError()
    assert registry.dump_metrics() == {"c": {"count": 1}}
    assert [metric.name for metric in registry.tallystream.snapshot()] == ["c"]
    assert "'ending' is skipped in this dump" in log.text
    error = SystemExit()
    for read in (registry.dump_metrics, registry.tallystream.snapshot):
        with pytest.raises(SystemExit):
            read()


def test_tags() -> None:
    """Metrics may have tags, which 0.4 does not have: one metric for each set of tags, in any order."""
    registry = ours.MetricsRegistry()
    assert registry.counter("c", {"a": 1, "b": 2}) is registry.counter("c", tags={"b": "2", "a": "1"})
    assert registry.counter("c") is not registry.counter("c", {"a": 1})
    registry.gauge("g", tags={"a": 1}).set_value(3)
    registry.add("c", ours.meters.Counter(), {"z": 0})
    assert list(registry.dump_metrics()) == ["c{a=1,b=2}", "c", "c{a=1}", "c{z=0}", "g{a=1}"]
    assert registry.get_metrics("g", {"a": 1}) == {"value": 3}
    before = ours.global_registry()
    ours.set_global_registry(registry)
    try:
        assert ours.gauge("g", tags={"a": 1}).get_value() == 3
        assert ours.timer("t", {"a": 1}) is registry.timer("t", {"a": 1})
    finally:
        ours.set_global_registry(before)
