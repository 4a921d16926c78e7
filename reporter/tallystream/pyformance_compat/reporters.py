"""The reporters: to the console and to Graphite, and the base class of those that an application has."""

from __future__ import annotations

import math
import sys
import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from tallystream.pyformance_compat.registry import global_registry
from tallystream.reporters.graphite import graphite_name
from tallystream.reporters.scheduled import ScheduledReporter
from tallystream.validation import as_number

if TYPE_CHECKING:
    from tallystream.pyformance_compat.registry import MetricsRegistry
    from tallystream.pyformance_compat.stats import Clock

__all__ = ["CarbonReporter", "ConsoleReporter", "Reporter"]

TIMEOUT = 5.0
"""Seconds for each network operation, and for the last report of `stop()`."""

Dump = dict[str, dict[str, Any]]


class PyformanceSchedule(ScheduledReporter):
    """The schedule of a reporter."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        super().__init__(reporter.registry, interval=reporter.reporting_interval, own_metrics=False)

    def __repr__(self) -> str:
        return f"<{type(self._reporter).__name__} of {self.registry.app!r}>"

    def _report(self) -> bool:
        self._reporter.report_now(self._reporter.registry)
        return False


class Reporter:
    """Reports a registry from a daemon thread, from `start()` to `stop()`. A subclass defines `report_now()`.

    The schedule is that of Tallystream's reporters: the first report is made at a random time in the first interval,
    and a last one by `stop()` or at the end of the process. A report that fails is logged, and the next one is made. In
    the child of a fork, the reporter goes on.

    Args:
        registry: the registry to report; if None, the current global registry.
        reporting_interval: seconds between two reports, from 0.01 to 3600.
        clock: the source of the timestamps: any object with `time()`.

    Raises:
        ConfigError: the interval is out of bounds.
    """

    def __init__(
        self, registry: MetricsRegistry | None = None, reporting_interval: float = 30, clock: Clock | None = None
    ) -> None:
        self.registry = global_registry() if registry is None else registry
        self.reporting_interval = reporting_interval
        self.clock: Clock = time if clock is None else clock
        self._schedule = PyformanceSchedule(self)

    def start(self) -> bool:
        """Start reporting; return False if the reporter is running."""
        was_running = self._schedule.is_running
        self._schedule.start()
        return not was_running

    def stop(self) -> None:
        """Make a last report and stop; a reporter that is not running makes none."""
        self._schedule.stop(TIMEOUT)

    def report_now(self, registry: MetricsRegistry | None = None, timestamp: float | None = None) -> None:
        """Make one report: of `registry` instead of its own, with `timestamp` (epoch seconds) instead of now.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError(self.report_now)

    def _values(self, registry: MetricsRegistry | None, timestamp: float | None) -> tuple[Dump, int]:
        # Return what to report, and the epoch seconds of the report.
        values = (self.registry if registry is None else registry).dump_metrics()
        return values, round(self.clock.time() if timestamp is None else timestamp)


class ConsoleReporter(Reporter):
    """Prints each report: a heading with the time, then each key and its values.

    Args:
        registry, reporting_interval, clock: as in Reporter.
        stream: the stream to print to; if None, the current standard error.
    """

    def __init__(
        self,
        registry: MetricsRegistry | None = None,
        reporting_interval: float = 30,
        stream: TextIO | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(registry, reporting_interval, clock)
        self.stream = stream

    def report_now(self, registry: MetricsRegistry | None = None, timestamp: float | None = None) -> None:
        """Print one report."""
        values, seconds = self._values(registry, timestamp)
        lines = [f"== {datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} ==================================="]
        for key, attributes in values.items():
            lines.append(f"{key}:")
            lines += [f"{attribute:>20} = {value}" for attribute, value in attributes.items()]
        print(*lines, "", sep="\n", file=self.stream or sys.stderr, flush=True)


class CarbonReporter(Reporter):
    """Sends each report to carbon over TCP: `prefix` and `key.attribute`, the value, and epoch seconds.

    White space and the characters that Graphite reserves become `_`. Values that are not finite numbers are skipped.

    Args:
        registry, reporting_interval, clock: as in Reporter.
        prefix: text before each key.
        server, port: the address of carbon.
    """

    def __init__(  # noqa: PLR0917 - pyformance's order
        self,
        registry: MetricsRegistry | None = None,
        reporting_interval: float = 5,
        prefix: str = "",
        server: str = "0.0.0.0",  # noqa: S104 - pyformance's address of this machine, to which it connects
        port: int = 2003,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(registry, reporting_interval, clock)
        self.prefix = prefix
        self.server = server
        self.port = port

    def report_now(self, registry: MetricsRegistry | None = None, timestamp: float | None = None) -> None:
        """Send one report over a new connection.

        Raises:
            OSError: the report can't be sent.
        """
        import socket  # imported here because it is slow to import

        values, seconds = self._values(registry, timestamp)
        lines = [
            f"{self.prefix}{graphite_name(f'{key}.{attribute}')} {number} {seconds}\n"
            for key, attributes in values.items()
            for attribute, value in attributes.items()
            if (number := _finite(value)) is not None
        ]
        if lines:
            with socket.create_connection((self.server, self.port), TIMEOUT) as connection:
                connection.sendall("".join(lines).encode())


def _finite(value: Any) -> float | None:
    with suppress(Exception):  # the application may set a gauge to any object
        number = as_number(value)
        if math.isfinite(number):
            return number
    return None
