"""The base class of the reporters: a thread that reports immediately, then every `reporting_interval` seconds."""

from __future__ import annotations

import logging
import time
from threading import Lock, Thread, current_thread
from typing import TYPE_CHECKING, Any

from tallystream.errors import ConfigError
from tallystream.pyformance_compat._clock import WALL, Clock
from tallystream.pyformance_compat._registry import global_registry
from tallystream.reporters.thread import Schedule
from tallystream.signals import SignalSafeEvent

if TYPE_CHECKING:
    from tallystream.pyformance_compat._registry import MetricsRegistry

JOIN_TIMEOUT = 5.0
"""Seconds that `stop()` waits for the last report."""

_log = logging.getLogger("tallystream.pyformance_compat")


class Reporter:
    """Reports a registry from a daemon thread, from `start()` to `stop()`. A subclass defines `report_now()`.

    A report that fails is logged and counted in `failures`, and the next one is made. `stop()` makes a last report.
    Then the reporter can't be started again.

    Args:
        registry: the registry to report; if None, the current global registry.
        reporting_interval: seconds between two reports.
        clock: the source of the timestamps: any object with `time()`.

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
        """Create the thread that `start()` starts."""
        self._loop_thread = Thread(
            target=self._loop, name=f"tallystream-pyformance-{type(self).__qualname__}", daemon=True
        )

    def start(self) -> bool:
        """Start reporting; return False if the reporter is running or was stopped.

        The thread does not exist in the child of a fork: call `start()` again there.
        """
        with self._starting:
            if self._stopped.is_set() or self._loop_thread.is_alive():
                return False
            if self._loop_thread.ident is not None:
                self.create_thread()
            self._loop_thread.start()
            return True

    def stop(self) -> None:
        """Make a last report and stop; a reporter that is not running makes none."""
        self._stopped.set()
        if self._loop_thread.is_alive() and self._loop_thread is not current_thread():
            self._loop_thread.join(JOIN_TIMEOUT)

    def report_now(self, registry: MetricsRegistry | None = None, timestamp: float | None = None) -> None:
        """Make one report: of `registry` instead of its own, with `timestamp` (epoch seconds) instead of now.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError(self.report_now)

    def _loop(self) -> None:
        schedule = Schedule(time.monotonic(), self.reporting_interval)
        while True:
            stopped = self._stopped.is_set()
            schedule.pop_due(time.monotonic())
            try:
                self.report_now(self.registry)
            except BaseException:  # noqa: BLE001 - one failed report must not stop the reporter
                self.failures += 1
                _log.exception("%s: a report failed; the next one follows", type(self).__name__)
            if stopped:
                return
            self._stopped.wait(max(schedule.due - time.monotonic(), 0))

    def _values(
        self, registry: MetricsRegistry | None, timestamp: float | None
    ) -> tuple[dict[str, dict[str, Any]], int]:
        # Return what to report, and the epoch seconds of the report.
        values = (self.registry if registry is None else registry).dump_metrics()
        return values, round(self.clock.time() if timestamp is None else timestamp)
