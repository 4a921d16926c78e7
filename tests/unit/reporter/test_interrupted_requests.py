"""Requests for metrics that a finalizer or a signal handler interrupts, which requests metrics too, or raises."""

from __future__ import annotations

from contextlib import suppress
from threading import Thread
from typing import TYPE_CHECKING

from support.interruptions import interruptions
from tallystream import MetricRegistry, MetricTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream.testing import ManualClock


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


def test_a_name_keeps_one_type(clock: ManualClock) -> None:
    """If the interrupting code requests the name with another type, one of the two requests is an error."""
    registry = MetricRegistry("app", clock=clock)

    def time() -> None:
        with suppress(MetricTypeError):
            registry.timer("name")

    def prepare() -> Callable[[], object]:
        nonlocal registry
        registry = MetricRegistry("app", clock=clock)
        return lambda: registry.counter("name", {"a": "b"})

    def test() -> None:
        for error in interruptions(prepare, time):
            assert error is None or isinstance(error, MetricTypeError)
            assert len(registry.metrics()) == 1

    in_a_thread(test)


def test_every_distribution_keeps_a_sample(clock: ManualClock) -> None:
    """Also one that is created while a reporter that shows samples is created."""
    registry = MetricRegistry("app", clock=clock)

    def prepare() -> Callable[[], object]:
        nonlocal registry
        registry = MetricRegistry("app", clock=clock)
        return lambda: registry.histogram("h")

    def keep_samples() -> None:
        registry.keep_samples()

    for _ in interruptions(prepare, keep_samples):
        assert registry.histogram("h")._is_sampled == registry._keeps_samples


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
