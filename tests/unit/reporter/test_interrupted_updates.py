"""Updates that a signal's handler interrupts by counting, or by raising, as `sys.exit(0)` or Ctrl-C do."""

from __future__ import annotations

import math
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from support.interruptions import interruptions
from tallystream import Counter, MetricRegistry
from tallystream.metrics.counter import BUFFER as COUNTER_BUFFER
from tallystream.metrics.histogram import BUFFER
from tallystream.metrics.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream.testing import ManualClock


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
