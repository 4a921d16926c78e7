"""What is better than in pyformance: threads, values that are not finite, and failing gauges."""

from __future__ import annotations

import asyncio
import gc
import itertools
import math
import sys
import threading
import time
from typing import Any

import pytest

from support.pyformances import Clock, ours
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
    """Threads that request a new metric at once get one object, so that no count is lost; dumps succeed meanwhile."""
    registry = ours.MetricsRegistry()
    keys = [str(number) for number in range(300)]

    def count() -> None:
        for key in keys:
            registry.counter(key).inc()
            registry.histogram(key).add(1)
            registry.meter(key).mark()

    def look() -> None:
        for _ in range(5):
            registry.dump_metrics()
            registry.tallystream.snapshot()

    hammer(*[count] * 8, look)
    for key in keys:
        assert registry.counter(key).get_count() == 8
        assert registry.histogram(key).get_count() == registry.meter(key).get_count() == 8


def test_a_finalizer_may_create_a_metric_while_all_are_listed() -> None:
    """The garbage collector runs finalizers, and other threads, at any new object."""
    registry, created = ours.MetricsRegistry(), itertools.count()
    for number in range(300):
        registry.counter(f"known-{number}")

    def create(*_: object) -> None:
        registry.counter(f"new-{next(created)}")

    gc.callbacks.append(create)
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        found = registry.dump_metrics()
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(create)
    assert next(created) > 0
    assert {f"known-{number}" for number in range(300)} <= found.keys()


def test_a_finalizer_may_clear_a_registry_that_is_being_reported() -> None:
    """At any moment of a snapshot: what was counted is in it, once."""
    registry, moments = ours.MetricsRegistry(), itertools.count(1)

    def clear(phase: str, _: object) -> None:
        if phase == "start" and next(moments) == 0:
            registry.clear()

    gc.callbacks.append(clear)
    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for moment in range(60):
            registry, moments = ours.MetricsRegistry(), itertools.count(-moment)
            registry.counter("c").inc()
            assert registry.tallystream.snapshot() == [record.Counter(name="c", count=1)]
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(clear)
    assert next(moments) < 0  # the last moment is after the snapshot


def test_a_finalizer_may_update_what_this_thread_updates() -> None:
    """In pyformance the thread then waits for itself, for ever."""
    finalizers: list[Any] = []

    class Collecting(Clock):
        def time(self) -> float:
            if finalizers:
                finalizers.pop()()
            return super().time()

    registry = ours.MetricsRegistry(Collecting())
    histogram, meter = registry.histogram("h"), registry.meter("m")

    def work() -> None:
        finalizers.append(lambda: histogram.add(-5))
        histogram.add(3)
        finalizers.append(meter.mark)
        meter.mark()

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(10)
    assert not worker.is_alive()
    assert (histogram.get_count(), histogram.get_min(), histogram.get_max()) == (2, -5, 3)
    assert (meter.get_count(), finalizers) == (2, [])


def test_what_threads_count_while_a_registry_is_cleared_is_reported() -> None:
    """No report has less than the one before, and in the end it has all, also what an object counts that is kept."""
    registry = ours.MetricsRegistry()
    kept, seen = registry.counter("c"), [0]

    def counts() -> list[int]:
        return [metric.count for metric in registry.tallystream.snapshot() if metric.type in {"counter", "histogram"}]

    def count() -> None:
        for _ in range(200):
            registry.counter("c").inc()
            registry.histogram("h").add(1)
            kept.inc()

    def clear() -> None:
        for _ in range(20):
            registry.clear()

    def look() -> None:
        seen.extend(counts()[0] for _ in range(20))

    hammer(count, count, clear, clear, look)
    assert seen == sorted(seen)
    assert counts() == [800, 400]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400, -(10**400)])
def test_a_value_that_is_not_finite_is_skipped_and_logged(value: float, log: pytest.LogCaptureFixture) -> None:
    """In pyformance one NaN makes a metric NaN forever."""
    registry = ours.MetricsRegistry(Clock())
    counter, meter, histogram = registry.counter("c"), registry.meter("m"), registry.histogram("h")
    for one in (1, value, 3):
        counter.inc(one)
        meter.mark(one)
        histogram.add(one)
    counter.dec(value)
    assert (counter.get_count(), meter.get_count(), histogram.get_count()) == (4, 4, 2)
    assert (histogram.get_mean(), histogram.get_min(), histogram.get_max()) == (2, 1, 3)
    assert registry.tallystream.snapshot()[0] == record.Counter(name="c", count=4)
    assert [text in log.text for text in ("'c' skips", "'m' skips", "'h' skips")] == [True] * 3


def test_a_value_that_is_not_a_number_changes_nothing() -> None:
    """The real pyformance counts and samples the value before it raises the TypeError."""
    histogram, counter = ours.meters.Histogram(), ours.meters.Counter()
    histogram.add(1)
    for add in (histogram.add, counter.inc):
        with pytest.raises(TypeError):
            add("2")
    assert (histogram.get_count(), histogram.sample.get_size(), counter.get_count()) == (1, 1, 0)


def test_statistics_that_are_wrong_in_pyformance() -> None:
    """The variance after a mean of -1, extremes beyond 32 bits, a mean rate when no time has passed, a steep decay."""
    registry, clock = ours.MetricsRegistry(Clock()), Clock()
    for value in (-1, 5):
        registry.histogram("h").add(value)
    assert registry.histogram("h").get_var() == 18
    registry.histogram("wide").add(3e9)
    assert registry.histogram("wide").get_min() == registry.histogram("wide").get_max() == 3e9
    registry.meter("m").mark()
    assert registry.dump_metrics()["m"]["mean_rate"] == 0
    steep = ours.meters.Histogram(alpha=0.99, size=2, clock=clock)
    for value in (1, 2, 3):
        steep.add(value)
        clock.add(500 * (value == 1))
    assert steep.get_snapshot().values == [2, 3]


def test_durations_do_not_depend_on_the_wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are those of a monotonic clock, unless a clock is given. A timing in `with` is the context."""
    now = iter(range(10_000, 0, -1))
    monkeypatch.setattr(time, "time", lambda: next(now))
    timer = ours.meters.Timer()
    with timer.time() as timing:
        pass
    assert timing.timer is timer
    assert timer.get_count() == 1


def test_a_gauge_that_fails_hides_no_other_metric_in_the_record(log: pytest.LogCaptureFixture) -> None:
    """Whatever its function raises is logged; only what the handler of a signal may raise passes. A dump raises it."""

    def fail() -> float:
        raise error

    registry = ours.MetricsRegistry()
    registry.counter("c").inc()
    registry.gauge("failing", fail)
    error: BaseException = RuntimeError("the queue is gone")
    for dump in (registry.dump_metrics, lambda: registry.get_metrics("failing")):
        with pytest.raises(RuntimeError):
            dump()
    for other in (RuntimeError(), asyncio.CancelledError()):
        error = other
        assert [metric.name for metric in registry.tallystream.snapshot()] == ["c"]
    assert "'failing' is skipped in this snapshot" in log.text
    error = SystemExit()
    with pytest.raises(SystemExit):
        registry.tallystream.snapshot()
