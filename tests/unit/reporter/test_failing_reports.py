"""Reports that fail: they are logged and counted, and the reporter makes the next one."""

from __future__ import annotations

from asyncio import CancelledError
from typing import TYPE_CHECKING, ClassVar

import pytest

from support.wait import wait_until
from tallystream import MetricRegistry
from tallystream.reporters.local import LocalReporter

if TYPE_CHECKING:
    from tallystream.record import Metric


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


def test_a_signal_ends_a_report_in_the_main_thread(registry: MetricRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of the process, when no thread can be started, KeyboardInterrupt passes."""

    def refuse(_: object) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    reporter = Failing(registry)
    reporter.error = KeyboardInterrupt()
    monkeypatch.setattr("tallystream.clock.Thread.start", refuse)
    with pytest.raises(KeyboardInterrupt):
        reporter.report_now()
    reporter.error = None
    assert reporter.report_now()
