"""Where metrics and registries differ from pyformance's: what goes wrong there, and what happens here."""

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


def hammer(*works: Any) -> None:
    """Run each work in a thread of its own, all from one moment, with as many switches as there can be."""
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
    """Metrics that many threads ask for first at the same time are one object each: no count is lost with another."""
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


def test_no_thread_can_make_the_metric_that_another_is_making() -> None:
    """While a metric is made, every other thread that asks for one that is not there has to wait."""
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


def test_a_sink_may_ask_the_registry_for_metrics() -> None:
    """Making a metric may make another: no deadlock."""

    class Registry(ours.MetricsRegistry):
        def create_sink(self) -> None:
            self.counter("sinks").inc()

    registry = Registry()
    registry.timer("t")
    assert registry.counter("sinks").get_count() == 1


def test_snapshots_while_values_are_added() -> None:
    """A snapshot that is taken while other threads add does not fail."""
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


def test_a_mean_rate_of_no_time_at_all() -> None:
    """There a ZeroDivisionError, which takes the whole dump with it; here 0."""
    for library in (real, ours):
        registry = library.MetricsRegistry(Clock())
        registry.meter("m").mark()
        if library is real:
            with pytest.raises(ZeroDivisionError):
                registry.dump_metrics()
        else:
            assert registry.dump_metrics()["m"]["mean_rate"] == 0


def test_the_variance_after_a_mean_of_minus_one() -> None:
    """There a mean of -1 means "no values yet", and the variance starts again; here it does not."""
    variances = []
    for library in (real, ours):
        histogram = library.meters.Histogram()
        for value in (-1, 5):
            histogram.add(value)
        variances.append(histogram.get_var())
    assert variances == [0.0, 18.0]


@pytest.mark.parametrize(("value", "least", "greatest"), [(3e9, 2147483647.0, 3e9), (-3e9, -3e9, -2147483647.0)])
def test_extremes_beyond_32_bits(value: float, least: float, greatest: float) -> None:
    """There min and max begin at the bounds of 32 bits, which stay where all values are beyond; here they are right."""
    theirs, mine = real.meters.Histogram(), ours.meters.Histogram()
    for histogram in (theirs, mine):
        histogram.add(value)
    assert (theirs.get_min(), theirs.get_max()) == (least, greatest)
    assert (mine.get_min(), mine.get_max()) == (value, value)


def test_a_value_that_is_no_number_changes_nothing() -> None:
    """TypeError in both; there the value is counted and sampled all the same, here nothing has changed."""
    counts = []
    for library in (real, ours):
        histogram = library.meters.Histogram()
        histogram.add(1)
        with pytest.raises(TypeError):
            histogram.add("2")
        counts.append((histogram.get_count(), histogram.sample.get_size()))
    assert counts == [(2, 2), (1, 1)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_left_out(value: float) -> None:
    """There one NaN makes sum, mean and variance NaN forever; here it is skipped and logged."""
    theirs, mine = real.meters.Histogram(), ours.meters.Histogram()
    for histogram in (theirs, mine):
        for one in (1, value, 3):
            histogram.add(one)
    assert not math.isfinite(theirs.get_mean())
    assert (mine.get_mean(), mine.get_count()) == (2, 2)


def test_a_clock_that_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """There a duration is a difference of the wall clock; here a clock that is not given is one that nobody sets."""
    now = iter(range(10_000, 0, -1))
    monkeypatch.setattr(time, "time", lambda: next(now))
    counts = []
    for library in (real, ours):
        timer = library.meters.Timer()
        with timer.time():
            pass
        counts.append(timer.get_count())
    assert counts == [0, 1]


def test_a_timing_can_be_named() -> None:
    """`with timer.time() as timing` gives None there, the timing here."""
    clock = Clock()
    with real.meters.Timer(clock=clock).time() as nothing:
        assert nothing is None
    with ours.meters.Timer(clock=clock).time() as timing:
        clock.add(2)
        assert timing.stop() == 2


def test_positional_arguments_of_a_timing_reach_the_signal() -> None:
    """There blinker refuses a second sender, and the timed block fails; here they arrive as `args`."""
    told = []

    def receive(sender: Any, **more: Any) -> None:
        told.append(more)

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
    assert told == [{"args": ("url",), "elapsed": 2}]


def test_hist_calls_takes_numbers() -> None:
    """There it calls a method that histograms do not have, so the function fails; here it takes the result."""

    def seven() -> int:
        return 7

    with pytest.raises(AttributeError):
        real.hist_calls(seven)()
    registry = ours.MetricsRegistry()
    assert ours.hist_calls(registry=registry)(seven)() == 7
    (values,) = registry.dump_metrics().values()
    assert (values["count"], values["avg"]) == (1, 7)


def test_coroutines_are_taken_to_their_end() -> None:
    """There time_calls times the making of a coroutine, and hist_calls sees no number; here both wait for its end."""
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
    """There weights leave the range of floats after 709 / alpha seconds, and add() fails; here they are rescaled."""
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
    """There add() divides by it."""
    monkeypatch.setattr(random, "random", lambda: 0.0)
    with pytest.raises(ZeroDivisionError):
        real.meters.Histogram().add(1)
    histogram = ours.meters.Histogram()
    histogram.add(1)
    assert histogram.get_snapshot().values == [1]


def test_a_sliding_window_is_bounded() -> None:
    """There values are only removed by a snapshot, so memory grows; here the newest 10,000 are kept at most."""
    sizes = []
    for library in (real, ours):
        clock = Clock()
        sample = library.stats.samples.SlidingTimeWindowSample(window=10, clock=clock)
        for value in range(20_000):
            sample.update(value)
        sizes.append(sample.get_snapshot().get_size())
    assert sizes == [20_000, 10_000]


def test_a_gauge_that_fails_hides_no_other_metric(log: pytest.LogCaptureFixture) -> None:
    """There the whole dump fails, so that nothing is reported; here it is skipped, with a line in the log."""

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


def test_tags() -> None:
    """Metrics may have tags, which 0.4 has not: a metric for each set of tags, in any order."""
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
