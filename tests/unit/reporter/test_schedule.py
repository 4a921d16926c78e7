"""The schedule of the reporters: when a report is due, what fails, what does not end."""

from __future__ import annotations

import math
import random
from asyncio import CancelledError
from threading import Event, Thread
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.scripted_producer import KafkaBench
from support.wait import wait_until
from tallystream import MetricRegistry
from tallystream.record import Metric
from tallystream.reporters.local import LocalReporter
from tallystream.reporters.scheduled import ScheduledReporter
from tallystream.reporters.thread import Schedule
from tallystream.testing import InMemoryReporter, ManualClock


@given(st.floats(0, 1e6), st.floats(0.01, 3600), st.floats(0, 1e6))
def test_the_next_time_is_always_in_the_future(first: float, interval: float, late: float) -> None:
    """Each time is due once. After a report, the next one is due later, within one interval."""
    schedule = Schedule(first, interval)
    now = first + late
    assert not schedule.pop_due(first - interval)
    assert schedule.pop_due(now)
    assert round((schedule.due - first) / interval, 3).is_integer()
    assert now < schedule.due + 1e-6 * interval + 1e-6
    assert schedule.due <= now + interval * (1 + 1e-9) + 1e-6


def test_reporters_that_start_together_do_not_report_together() -> None:
    """The first report of each is due at a random time in the first interval."""
    clock, due = ManualClock(), set[float]()
    clock.advance(1000)
    for _ in range(20):
        with InMemoryReporter(MetricRegistry("orders", clock=clock), interval=60) as reporter:
            assert reporter._thread is not None
            due.add(reporter._thread._schedule.due)
    assert len(due) == 20
    assert all(1000 <= first <= 1060 for first in due)


def test_a_reporter_draws_none_of_the_random_numbers_of_the_application() -> None:
    """A program with a seed has the same numbers with metrics and without; with the same seed, none report together."""
    registry = MetricRegistry("orders")
    random.seed(1)
    expected = random.random()
    random.seed(1)
    with InMemoryReporter(registry, interval=60) as reporter:
        for number in range(100):
            registry.histogram("h").update(number)
        assert reporter.report_now()
    assert random.random() == expected


class Failing(LocalReporter):
    """A reporter whose reports raise `error` while it is not None; it counts all reports."""

    kind: ClassVar[str] = "failing"
    error: BaseException | None = None
    reports = 0

    def _write(self, metrics: list[Metric], ts_ms: int) -> int:  # noqa: ARG002 - it writes nothing
        self.reports += 1
        if self.error is not None:
            raise self.error
        return 0


@pytest.fixture
def registry() -> MetricRegistry:
    """Return a registry with the clock of the system, so that reports become due."""
    return MetricRegistry("app")


ERRORS = [OSError("no route"), CancelledError(), SystemExit(), KeyboardInterrupt()]


@pytest.mark.parametrize("error", ERRORS)
def test_the_schedule_continues_after_a_failed_report(
    registry: MetricRegistry, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a report raises, the thread makes the next one, and stop() the last one."""
    reporter = Failing(registry, interval=0.01)
    reporter.error = error
    with reporter:
        wait_until(lambda: reporter.failures >= 2, 10, "two failed reports", poll=0.01)
        assert reporter.last_error == f"a report failed: {str(error) or repr(error)}"
        reporter.error = None
        made = reporter.reports
        wait_until(lambda: reporter.reports >= made + 2, 10, "two reports", poll=0.01)
        assert reporter.stop()
    assert f"a report failed: {str(error) or repr(error)}" in caplog.text


@pytest.fixture(params=["kafka", "memory"])
def reporter(request: pytest.FixtureRequest) -> ScheduledReporter:
    return KafkaBench().reporter if request.param == "kafka" else InMemoryReporter(MetricRegistry("app"))


@pytest.mark.parametrize("call", ["stop", "report_now"])
def test_a_gauge_that_does_not_return_delays_no_call(reporter: ScheduledReporter, call: str) -> None:
    """The call returns False at its deadline while a gauge's function runs; the next call makes a report."""
    assert reporter.report_now()
    resume, has_ended = Event(), Event()

    def slow() -> float:
        resume.wait(2)
        has_ended.set()
        return 1.0

    reporter.registry.gauge("slow", slow)
    assert not getattr(reporter, call)(0.1)
    assert not has_ended.is_set()
    resume.set()
    assert getattr(reporter, call)(10)


@pytest.mark.parametrize("timeout", [math.inf, 1e300, 1e10])
def test_a_call_may_wait_forever(reporter: ScheduledReporter, timeout: float) -> None:
    """A timeout beyond what a lock accepts is no error."""
    assert reporter.report_now(timeout)
    assert reporter.stop(timeout)
    reporter.start()
    assert reporter.is_running
    assert reporter.stop(timeout)
    assert not reporter.is_running


def test_a_report_is_made_if_no_thread_can_start(registry: MetricRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 and later start no threads at exit: the calling thread makes the report, and a signal may end it."""

    def refuse(_: Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    bench, interrupted = KafkaBench(), Failing(registry)
    assert bench.reporter.report_now()
    interrupted.error = KeyboardInterrupt()
    with monkeypatch.context() as patched:
        patched.setattr(Thread, "start", refuse)
        assert bench.reporter.stop()
        with pytest.raises(KeyboardInterrupt):
            interrupted.report_now()
    assert bench.snapshots[-1].final
    interrupted.error = None
    assert interrupted.report_now()
