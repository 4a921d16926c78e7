"""The reporters to Graphite: carbon's plaintext or pickle protocol, over TCP or UDP."""

from __future__ import annotations

import math
import pickle
import re
import socket
import struct
from contextlib import closing
from typing import TYPE_CHECKING, Any

from tallystream.pyformance_compat.reporters.reporter import Reporter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream.pyformance_compat._clock import Clock
    from tallystream.pyformance_compat._registry import MetricsRegistry

DEFAULT_CARBON_SERVER = "0.0.0.0"  # noqa: S104 - pyformance's address of this machine, to which it connects
DEFAULT_CARBON_PORT = 2003
TIMEOUT = 5.0
"""Seconds for each network operation."""

DATAGRAM = 1400
"""The maximum bytes of a datagram, which networks usually do not fragment. A longer line has its own datagram."""

_NOT_GRAPHITE = re.compile(r"[\s;!^=~\x00-\x1f\x7f]")


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
        server, port: the address of carbon; its pickle port is usually 2004.
        socket_factory: returns the socket.
        pickle_protocol: whether to send pickles instead of text.
    """

    def __init__(  # noqa: PLR0917 - pyformance's order
        self,
        registry: MetricsRegistry | None = None,
        reporting_interval: float = 5,
        prefix: str = "",
        server: str = DEFAULT_CARBON_SERVER,
        port: int = DEFAULT_CARBON_PORT,
        socket_factory: Callable[..., Any] = _make_socket,
        clock: Clock | None = None,
        pickle_protocol: bool = False,
    ) -> None:
        super().__init__(registry, reporting_interval, clock)
        self.prefix = prefix
        self.server = server
        self.port = port
        self.socket_factory = socket_factory
        self.pickle_protocol = pickle_protocol

    def report_now(self, registry: MetricsRegistry | None = None, timestamp: float | None = None) -> None:
        """Send one report over a new connection.

        Raises:
            OSError: the report can't be sent.
        """
        points, seconds = self._points(registry, timestamp)
        if not points:
            return
        with closing(self.socket_factory()) as connection:
            connection.connect((self.server, self.port))
            if self.pickle_protocol:
                connection.sendall(_pickled(points, seconds))
            else:
                connection.sendall("".join(_line(path, value, seconds) for path, value in points).encode())

    def _points(self, registry: MetricsRegistry | None, timestamp: float | None) -> tuple[list[tuple[str, Any]], int]:
        values, seconds = self._values(registry, timestamp)
        points = [
            (self.prefix + _NOT_GRAPHITE.sub("_", f"{key}.{attribute}"), value)
            for key, attributes in values.items()
            for attribute, value in attributes.items()
            if isinstance(value, int | float) and math.isfinite(value)
        ]
        return points, seconds


class UdpCarbonReporter(CarbonReporter):
    """Sends each report in UDP datagrams, which may get lost."""

    def report_now(self, registry: MetricsRegistry | None = None, timestamp: float | None = None) -> None:
        """Send one report, in datagrams of whole lines (or of one pickle each)."""
        points, seconds = self._points(registry, timestamp)
        with closing(self.socket_factory(socket.AF_INET, socket.SOCK_DGRAM)) as sender:
            for datagram in self._datagrams(points, seconds):
                sender.sendto(datagram, (self.server, self.port))

    def _datagrams(self, points: list[tuple[str, Any]], seconds: int) -> list[bytes]:
        if self.pickle_protocol:
            return [_pickled([point], seconds) for point in points]
        datagrams = [b""]
        for path, value in points:
            line = _line(path, value, seconds).encode()
            if datagrams[-1] and len(datagrams[-1]) + len(line) > DATAGRAM:
                datagrams.append(b"")
            datagrams[-1] += line
        return [datagram for datagram in datagrams if datagram]


def _line(path: str, value: Any, seconds: int) -> str:
    return f"{path} {value} {seconds}\n"


def _pickled(points: list[tuple[str, Any]], seconds: int) -> bytes:
    # All versions of carbon can read protocol 2, even on Python 2.
    payload = pickle.dumps([(path, (seconds, value)) for path, value in points], protocol=2)
    return struct.pack("!L", len(payload)) + payload
