"""Computed gauges that fail."""

from __future__ import annotations

import asyncio
import math
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tallystream import MetricRegistry, record
from tallystream.testing import find

if TYPE_CHECKING:
    from collections.abc import Callable


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
