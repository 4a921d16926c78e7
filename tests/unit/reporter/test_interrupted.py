"""Code that a signal's handler or a finalizer interrupts, at each moment at which Python may call one."""

from __future__ import annotations

import gc
import math
import sys
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest

from tallystream import Counter, MetricRegistry
from tallystream.metrics.counter import BUFFER as COUNTER_BUFFER
from tallystream.metrics.histogram import BUFFER
from tallystream.metrics.sketch import Sketch
from tallystream.process.signals import SignalSafeEvent
from tallystream.testing import ManualClock


def end() -> None:
    """Raise what the handler of a signal raises to end the process: the usual interruption."""
    raise SystemExit


def interruptions(
    prepare: Callable[[], Callable[[], object]], interrupt: Callable[[], object] = end
) -> Iterator[BaseException | None]:
    """Call what `prepare()` returns again and again, each time interrupted at a later moment by `interrupt()`.

    The moments are those at which Python calls handlers: at the start of a function, and after a call of a built-in
    function. A profile function interrupts at each of them. Yields what an interrupted call has raised, if anything,
    after each; the last call is not interrupted, and yields nothing.
    """
    moment, left, is_over = 0, 0, False

    def profile(_: object, event: str, argument: Any) -> None:
        nonlocal left
        # After a lock's `__enter__`, only a Python 3.14 calls handlers (github.com/python/cpython/issues/148874).
        if event == "call" or (event == "c_return" and argument.__name__ != "__enter__"):
            left -= 1
            if left == -1:
                interrupt()

    while not is_over:
        call, left = prepare(), moment
        error: BaseException | None = None
        gc.disable()  # a finalizer of another test would have these moments too
        try:
            sys.setprofile(profile)
            call()
        except (Exception, SystemExit) as raised:  # noqa: BLE001 - it is yielded, unlike the end of a test's time
            error = raised
        finally:
            sys.setprofile(None)
            gc.enable()
        is_over = left >= 0
        if not is_over:
            yield error
        elif error is not None:
            raise error
        moment += 1
    assert moment > 3


def in_a_thread(test: Callable[[], None]) -> None:
    """Run a test in a thread, which must end: an interrupted request may not wait for itself."""
    done: list[bool] = []
    thread = Thread(target=lambda: done.append(test() is None), daemon=True)
    thread.start()
    thread.join(10)
    assert done, "a request waits for itself, or the test failed in its thread"


def test_an_interrupted_request_returns_the_same_metric(clock: ManualClock) -> None:
    """The interrupting code gets the same object without waiting, so no count is lost."""
    registry = MetricRegistry("app", clock=clock)

    def count() -> None:
        registry.counter("c", {"a": "b"}).inc()

    def both() -> None:
        count()
        registry.counter("c", {"a": "c"}).inc()

    def prepare() -> Callable[[], None]:
        nonlocal registry
        registry = MetricRegistry("app", clock=clock)
        return count

    def test() -> None:
        for _ in interruptions(prepare, both):
            both()
            counts = [(metric.tags["a"], metric.count) for metric in registry.snapshot()]  # type: ignore[union-attr]
            assert sorted(counts) == [("b", 3), ("c", 2)]

    in_a_thread(test)


def test_an_interrupt_while_a_metric_is_created_leaves_no_unreported_metric(clock: ManualClock) -> None:
    """If the handler raises, the metric exists completely or not at all."""
    registry = MetricRegistry("app", clock=clock)

    def prepare() -> Callable[[], object]:
        nonlocal registry
        registry = MetricRegistry("app", clock=clock)
        return lambda: registry.counter("c")

    for _ in interruptions(prepare):
        made = registry.metrics()
        assert [(each.kind, each.name) for each in made] == [(each.type, each.name) for each in registry.snapshot()]
        (registry.counter("c") if made else registry.updown("c")).inc()
        [found] = registry.snapshot()
        assert (found.name, found.type) == ("c", "counter" if made else "updown")


def test_an_interrupted_atomic_block_does_not_lock_the_registry(clock: ManualClock) -> None:
    """Another thread makes a snapshot while the exception is handled."""
    registry = MetricRegistry("app", clock=clock)
    one, two = registry.counter("one"), registry.counter("two")

    def update() -> None:
        with registry.atomic():
            one.inc()
            two.inc()

    for error in interruptions(lambda: update):
        found: list[Any] = []
        thread = Thread(target=lambda found=found: found.append(registry.snapshot()), daemon=True)
        thread.start()
        thread.join(10)
        assert found, error


VALUES = [3.0, 0.0, 2.0**-40, 5.0, 2.0**40, 7.0]
"""Their magnitudes are so different that the sketch halves its buckets."""


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("kind", ["histogram", "timer"])
def test_an_interrupted_distribution_is_complete(clock: ManualClock, kind: str, *, sampled: bool) -> None:
    """The lock is free. Sketch, count, sum, min and max have every value once, but may lack the interrupted one."""
    added: list[float] = []
    metric: Any = None

    def prepare() -> Callable[[], None]:
        nonlocal metric
        metric = getattr(MetricRegistry("app", clock=clock), kind)("d")
        if sampled:
            metric.keep_sample()
        added.clear()
        for _ in range(BUFFER - 4):
            add(1.0)
        clock.advance(6)
        return update

    def add(value: float) -> None:
        metric.update(value)
        added.append(value)

    def update() -> None:
        for value in VALUES:
            add(value)
        metric.collect(views=False)

    for _ in interruptions(prepare):
        assert not metric._lock.locked()
        interrupted = ([1.0] * (BUFFER - 4) + VALUES)[len(added) : len(added) + 1]
        add(2.0)
        read = metric.read()
        if read.count > len(added):
            added += interrupted
        sketch = Sketch()
        sketch.add(added)
        assert read.sketch == sketch.encode()
        assert (read.count, read.sum, read.min, read.max) == (len(added), math.fsum(added), min(added), max(added))


@pytest.mark.parametrize("kind", ["counter", "meter"])
def test_an_interrupted_count_is_complete(clock: ManualClock, kind: str) -> None:
    """The locks are free. Every increment counts once, but the interrupted one may be missing."""
    done = 0
    metric: Any = None

    def prepare() -> Callable[[], None]:
        nonlocal metric, done
        metric, done = getattr(MetricRegistry("app", clock=clock), kind)("c"), 0
        for _ in range(COUNTER_BUFFER - 3):
            add()
        clock.advance(6)
        return update

    def add() -> None:
        nonlocal done
        metric.inc() if kind == "counter" else metric.mark()
        done += 1

    def update() -> None:
        for _ in range(4):
            add()
        metric.read()

    for _ in interruptions(prepare):
        assert not metric._lock.locked()
        assert metric.count - done in {0, 1}
        done = metric.count
        for _ in range(2 * COUNTER_BUFFER):
            add()
        assert metric.count == metric.read().count == done
        counter = metric if kind == "counter" else metric._counter
        assert len(counter._amounts) < COUNTER_BUFFER


def test_a_signal_handler_can_count_at_any_time() -> None:
    """An increment that adds up, or a reading, that another increment interrupts: nothing blocks or counts twice."""
    counter, known = Counter("c", {}), list[tuple[int, int]]()

    def prepare() -> Callable[[], None]:
        nonlocal counter
        counter = Counter("c", {})
        known.clear()
        for _ in range(COUNTER_BUFFER - 2):
            counter.inc()
        return update

    def update() -> None:
        counter.inc(2)
        counter.count  # noqa: B018 - the access adds up

    def handle() -> None:
        before = counter.count
        counter.inc(1000)
        known.append((before, counter.count))

    for error in interruptions(prepare, handle):
        assert error is None
        [(before, after)] = known
        assert before in (COUNTER_BUFFER - 2, COUNTER_BUFFER)
        assert after == before + 1000
        assert counter.count == COUNTER_BUFFER + 1000


def test_a_signal_handler_can_set_it_at_any_time() -> None:
    """A handler that interrupts a wait sets the event, and the wait ends.

    With `threading.Event`, the process could wait forever.
    """
    event = SignalSafeEvent()

    def prepare() -> Callable[[], object]:
        nonlocal event
        event = SignalSafeEvent()
        return lambda: event.wait(0.001)

    def handle() -> None:
        event.set()

    for error in interruptions(prepare, handle):
        assert error is None
        assert event.is_set()
        assert event.wait(0)


def test_all_waiting_threads_are_woken() -> None:
    """It ends every wait, of threads that wait already and of those that wait later."""
    event = SignalSafeEvent()
    seen: list[bool] = []
    waiting = [Thread(target=lambda: seen.append(event.wait(60))) for _ in range(5)]
    for thread in waiting:
        thread.start()
    assert not event.is_set()
    assert not event.wait(0)
    assert not event.wait(-1)
    event.set()
    event.set()
    for thread in waiting:
        thread.join(60)
    assert seen == [True] * 5
    assert event.wait()
    assert event.is_set()
