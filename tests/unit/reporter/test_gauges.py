"""Computed gauges: cached, derived from other metrics, and failing."""

from __future__ import annotations

import asyncio
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tallystream import ConfigError, MetricRegistry, derived, ratio, record
from tallystream.testing import ManualClock, assert_not_reported, find

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_cached_gauge_calls_its_function_once_in_its_time(registry: MetricRegistry, clock: ManualClock) -> None:
    """The function is called again only after `cached_for` seconds."""
    calls = []

    def count() -> float:
        calls.append(clock.monotonic())
        return len(calls)

    gauge = registry.gauge("g", count, cached_for=10)
    for _ in range(40):
        assert gauge.value == clock.monotonic() // 10 + 1
        assert find(registry, "g") == record.Gauge(name="g", value=gauge.value or 0)
        clock.advance(1)
    assert calls == [0, 10, 20, 30]


def test_a_cached_gauge_that_fails_is_not_called_again_immediately(
    registry: MetricRegistry, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """After an error the gauge has no value until `cached_for` seconds have passed."""
    answers = iter([1.0, OSError("down"), 3.0])

    def ask() -> float:
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        return answer

    registry.gauge("sometimes", ask, cached_for=10)
    registry.counter("neighbour").inc()
    seen = []
    for _ in range(6):
        found = find(registry, "sometimes")
        seen.append(found.value if isinstance(found, record.Gauge) else None)
        assert find(registry, "neighbour")
        clock.advance(5)
    assert seen == [1, 1, None, None, 3, 3]
    assert caplog.text.count("'sometimes' is skipped") == 1


def test_threads_share_one_call_of_a_cached_function(registry: MetricRegistry) -> None:
    """While one thread calls the function, the others get no new value and do not wait."""
    asked, answered = threading.Event(), threading.Event()

    def slow() -> float:
        asked.set()
        assert answered.wait(10)
        return 1.0

    gauge = registry.gauge("g", slow, cached_for=10)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(lambda: gauge.value)
        assert asked.wait(10)
        assert gauge.value is None
        answered.set()
        assert first.result() == 1
    assert gauge.value == 1
    gauge.reset_after_fork()
    asked.clear()
    assert gauge.value == 1
    assert asked.is_set()


def test_cached_for_needs_a_function_and_a_positive_time(registry: MetricRegistry) -> None:
    """Other arguments raise a ConfigError."""
    with pytest.raises(ConfigError, match="give a function with it"):
        registry.gauge("g", cached_for=3)
    for seconds in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ConfigError, match="cached_for"):
            registry.gauge("g", lambda: 1.0, cached_for=seconds)
    assert registry.metrics() == []


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


def test_reading_a_gauge_is_like_a_snapshot(registry: MetricRegistry) -> None:
    """read() returns None for a gauge that raises or is not a finite number; `value` is unchanged."""

    def fail() -> float:
        raise OSError("down")

    answers: list[Callable[[], float | None]] = [lambda: 3.0, lambda: math.nan, lambda: math.inf, lambda: None, fail]
    for number, answer in enumerate(answers):
        gauge = registry.gauge(f"read.{number}", answer)
        assert gauge.read() == find(registry, gauge.name)
        assert (gauge.read() is None) is (number > 0)
    with pytest.raises(OSError, match="down"):
        assert registry.gauge("read.4").value
    assert math.isnan(registry.gauge("read.1").value or 0)


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


def test_derived_gauges_transform_their_source(registry: MetricRegistry) -> None:
    """A gauge, an updown, a count or a function is transformed; a source without a value gives none."""
    celsius = registry.gauge("celsius")
    fahrenheit = registry.gauge("fahrenheit", derived(celsius, lambda c: c * 9 / 5 + 32))
    assert fahrenheit.value is None
    assert_not_reported(registry, "fahrenheit")
    celsius.set(100)
    assert fahrenheit.value == 212
    open_, timer = registry.updown("open"), registry.timer("t")
    open_.inc(3)
    timer.update(1)
    assert registry.gauge("free", derived(open_, lambda n: 10 - n)).value == 7
    assert registry.gauge("calls", derived(timer, lambda n: n * 2)).value == 2
    assert registry.gauge("of.derived", derived(lambda: fahrenheit.value, lambda f: -f)).value == -212


def test_a_ratio_with_divisor_zero_has_no_value(registry: MetricRegistry) -> None:
    """It is not reported and not logged; with a divisor it is the quotient of the counts."""
    hits, lookups = registry.counter("hits"), registry.meter("lookups")
    gauge = registry.gauge("hit.ratio", ratio(hits, lookups), tags={"cache": "a"})
    unset = registry.gauge("unset")
    assert gauge.value is None
    assert_not_reported(registry, "hit.ratio", tags={"cache": "a"})
    lookups.mark(4)
    hits.inc()
    assert gauge.value == 0.25
    assert ratio(unset, hits)() is ratio(hits, unset)() is None
    assert ratio(lambda: 3.0, lambda: 2.0)() == 1.5
