"""The reporters: to the console, to Graphite and to InfluxDB, and the base class of those that an application has."""

from __future__ import annotations

import logging
import math
import socket
import sys
import time
from base64 import b64encode
from contextlib import closing
from datetime import UTC, datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Lock, Thread, current_thread
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlencode

from tallystream.errors import ConfigError
from tallystream.process.signals import SignalSafeEvent
from tallystream.pyformance_compat.registry import global_registry
from tallystream.pyformance_compat.stats import WALL, Clock
from tallystream.reporters.graphite import graphite_name
from tallystream.reporters.influx import influx_name
from tallystream.reporters.thread import Schedule

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream.pyformance_compat.registry import MetricsRegistry

__all__ = ["CarbonReporter", "ConsoleReporter", "InfluxReporter", "Reporter"]

JOIN_TIMEOUT = 5.0
"""Seconds that `stop()` waits for the last report."""

TIMEOUT = 5.0
"""Seconds for each network operation."""

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


def _make_socket(*arguments: Any) -> socket.socket:
    created = socket.socket(*arguments)
    created.settimeout(TIMEOUT)
    return created


class CarbonReporter(Reporter):
    """Sends each report to carbon over TCP: `prefix` and `key.attribute`, the value, and epoch seconds.

    White space and the characters that Graphite reserves become `_`. Values that are not finite numbers are skipped.

    Args:
        registry, reporting_interval, clock: as in Reporter.
        prefix: text before each key.
        server, port: the address of carbon.
        socket_factory: returns the socket.
    """

    def __init__(  # noqa: PLR0917 - pyformance's order
        self,
        registry: MetricsRegistry | None = None,
        reporting_interval: float = 5,
        prefix: str = "",
        server: str = "0.0.0.0",  # noqa: S104 - pyformance's address of this machine, to which it connects
        port: int = 2003,
        socket_factory: Callable[..., Any] = _make_socket,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(registry, reporting_interval, clock)
        self.prefix = prefix
        self.server = server
        self.port = port
        self.socket_factory = socket_factory

    def report_now(self, registry: MetricsRegistry | None = None, timestamp: float | None = None) -> None:
        """Send one report over a new connection.

        Raises:
            OSError: the report can't be sent.
        """
        values, seconds = self._values(registry, timestamp)
        lines = [
            f"{self.prefix}{graphite_name(f'{key}.{attribute}')} {value} {seconds}\n"
            for key, attributes in values.items()
            for attribute, value in attributes.items()
            if isinstance(value, int | float) and math.isfinite(value)
        ]
        if lines:
            with closing(self.socket_factory()) as connection:
                connection.connect((self.server, self.port))
                connection.sendall("".join(lines).encode())


class InfluxReporter(Reporter):
    """Writes each report: one point for a key, one field for an attribute, timestamps in seconds.

    Delivery is not guaranteed: a report that can't be written is logged with InfluxDB's response, and the next one has
    newer values. Values that are neither finite numbers nor text are skipped.

    Args:
        registry, reporting_interval, clock: as in Reporter.
        prefix: text before each key, followed by a point.
        database: the name of the database.
        server, port, protocol: InfluxDB's address.
        username, password: sent as HTTP basic authentication, never logged.
        autocreate_database: whether to create the database before the first report.
    """

    def __init__(  # noqa: PLR0917 - pyformance's order
        self,
        registry: MetricsRegistry | None = None,
        reporting_interval: float = 5,
        prefix: str = "",
        database: str = "metrics",
        server: str = "127.0.0.1",
        username: str | None = None,
        password: str | None = None,
        port: int = 8086,
        protocol: str = "http",
        autocreate_database: bool = False,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(registry, reporting_interval, clock)
        self.prefix = prefix
        self.database = database
        self.username = username
        self.password = password
        self.port = port
        self.protocol = protocol
        self.server = server
        self.autocreate_database = autocreate_database
        self._did_create_database = False

    def report_now(self, registry: MetricsRegistry | None = None, timestamp: float | None = None) -> None:
        """Write one report; a failure is logged, not raised."""
        if self.autocreate_database and not self._did_create_database:
            statement = 'CREATE DATABASE "{}"'.format(self.database.replace('"', '\\"'))
            self._did_create_database = self._post("/query", {"q": statement}, b"")
        values, seconds = self._values(registry, timestamp)
        prefix = f"{self.prefix}." if self.prefix else ""
        lines = [_line(f"{prefix}{key}", attributes, seconds) for key, attributes in values.items()]
        data = "\n".join(line for line in lines if line).encode()
        self._post("/write", {"db": self.database, "precision": "s"}, data)

    def _post(self, path: str, query: dict[str, str], data: bytes) -> bool:
        headers = {"Content-Type": "text/plain; charset=utf-8"}
        if self.username:
            credentials = b64encode(f"{self.username}:{self.password or ''}".encode()).decode()
            headers["Authorization"] = f"Basic {credentials}"
        connect = HTTPSConnection if self.protocol == "https" else HTTPConnection
        try:
            # It follows no redirect: the target would get a GET with the password.
            with closing(connect(self.server, self.port, timeout=TIMEOUT)) as connection:
                connection.request("POST", f"{path}?{urlencode(query)}", data, headers)
                response = connection.getresponse()
                body = response.read(500).decode(errors="replace").strip()
        except (OSError, HTTPException) as error:
            return self._fail(path, f"it can't be reached: {error}")
        return 200 <= response.status < 300 or self._fail(path, f"it returned {response.status}: {body}")

    def _fail(self, path: str, reason: str) -> bool:
        self.failures += 1
        _log.warning("InfluxDB at %s:%s, %s: %s", self.server, self.port, path, reason)
        return False


def _line(key: str, attributes: dict[str, Any], seconds: int) -> str | None:
    fields = [f"{name}={text}" for name, value in attributes.items() if (text := _field(value)) is not None]
    return f"{influx_name(key)} {','.join(fields)} {seconds}" if fields else None


def _field(value: Any) -> str | None:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value) if isinstance(value, int | float) and math.isfinite(value) else None
