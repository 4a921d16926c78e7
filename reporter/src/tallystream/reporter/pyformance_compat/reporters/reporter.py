"""The base of the reporters: a thread that reports at once, and then every `reporting_interval` seconds."""

from __future__ import annotations

import logging
import time
from threading import Lock, Thread, current_thread
from typing import TYPE_CHECKING, Any

from tallystream.reporter.errors import ConfigError
from tallystream.reporter.pyformance_compat._clock import WALL, Clock
from tallystream.reporter.pyformance_compat._registry import global_registry
from tallystream.reporter.schedule import Schedule
from tallystream.reporter.signals import SignalSafeEvent

if TYPE_CHECKING:
    from tallystream.reporter.pyformance_compat._registry import MetricsRegistry

JOIN_TIMEOUT = 5.0
"""Seconds that `stop()` waits for a report that is under way."""

_log = logging.getLogger("tallystream.reporter.pyformance")


class Reporter:
    """Reports a registry from a daemon thread, from `start()` to `stop()`; a subclass says how, in `report_now()`.

    A report that fails is logged and counted (`failures`), and the next one still happens. `stop()` makes a last
    report, and after it the reporter does not start again.

    Args:
        registry: what is reported, the global registry of this moment if not given.
        reporting_interval: seconds between two reports.
        clock: where the timestamps come from: anything with `time()`.

    Raises:
        ConfigError: the interval is not above zero.
    """

    def __init__(
        self, registry: MetricsRegistry | None = None, reporting_interval: float = 30, clock: Clock | None = None
    ) -> None:
        if reporting_interval <= 0:
            raise ConfigError("reporting_interval", reporting_interval, "use a number of seconds above 0")
        self.registry = global_registry() if registry is None else registry
        self.reporting_interval = reporting_interval
        self.clock = WALL if clock is None else clock
        self.failures = 0
        self._stopped = SignalSafeEvent()
        self._starting = Lock()
        self.create_thread()

    def create_thread(self) -> None:
        """Make the thread that `start()` starts."""
        self._loop_thread = Thread(
            target=self._loop, name=f"tallystream-pyformance-{type(self).__qualname__}", daemon=True
        )

    def start(self) -> bool:
        """Begin to report; return False where it has begun already, or was stopped.

        In the child of a fork, which has no such thread, it begins anew.
        """
        with self._starting:
            if self._stopped.is_set() or self._loop_thread.is_alive():
                return False
            if self._loop_thread.ident is not None:
                self.create_thread()
            self._loop_thread.start()
            return True

    def stop(self) -> None:
        """Make a last report, and end; a reporter that is not running has none to make."""
        self._stopped.set()
        if self._loop_thread.is_alive() and self._loop_thread is not current_thread():
            self._loop_thread.join(JOIN_TIMEOUT)

    def report_now(self, registry: MetricsRegistry | None = None, timestamp: float | None = None) -> None:
        """Make one report: of `registry` instead of its own, with `timestamp` (epoch seconds) instead of this moment.

        Raises:
            NotImplementedError: the subclass does not say how.
        """
        raise NotImplementedError(self.report_now)

    def _loop(self) -> None:
        schedule = Schedule(time.monotonic(), self.reporting_interval)
        while True:
            stopped = self._stopped.is_set()
            schedule.take(time.monotonic())
            try:
                self.report_now(self.registry)
            except Exception:  # noqa: BLE001 - one failed report must not end the reporting
                self.failures += 1
                _log.exception("%s: a report failed; the next one comes", type(self).__name__)
            if stopped:
                return
            self._stopped.wait(max(schedule.due - time.monotonic(), 0))

    def _asked(
        self, registry: MetricsRegistry | None, timestamp: float | None
    ) -> tuple[dict[str, dict[str, Any]], int]:
        # What to report, and the epoch seconds that go with it.
        values = (self.registry if registry is None else registry).dump_metrics()
        return values, round(self.clock.time() if timestamp is None else timestamp)
