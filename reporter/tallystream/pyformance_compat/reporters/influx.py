"""The reporter to InfluxDB 1.x, and to 2.x by its 1.x compatibility API."""

from __future__ import annotations

import logging
import math
from base64 import b64encode
from functools import cache
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, OpenerDirector, Request, build_opener

from tallystream.pyformance_compat.reporters.reporter import Reporter

if TYPE_CHECKING:
    from tallystream.pyformance_compat._clock import Clock
    from tallystream.pyformance_compat._registry import MetricsRegistry

DEFAULT_INFLUX_SERVER = "127.0.0.1"
DEFAULT_INFLUX_PORT = 8086
DEFAULT_INFLUX_DATABASE = "metrics"
DEFAULT_INFLUX_PROTOCOL = "http"
TIMEOUT = 5.0
"""Seconds to wait for a response."""

_MEASUREMENT = str.maketrans({",": "\\,", " ": "\\ ", "\n": "\\n", "\r": "\\r", "\t": "\\t"})

LOG = logging.getLogger("tallystream.pyformance_compat")


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Return None, so that a redirect raises HTTPError: its target would get a GET with the password."""


@cache
def _opener() -> OpenerDirector:
    return build_opener(_NoRedirects)


def urlopen(request: Request, timeout: float) -> Any:
    """Send a request and return the response, as in urllib, but follow no redirect."""
    return _opener().open(request, timeout=timeout)


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
        database: str = DEFAULT_INFLUX_DATABASE,
        server: str = DEFAULT_INFLUX_SERVER,
        username: str | None = None,
        password: str | None = None,
        port: int = DEFAULT_INFLUX_PORT,
        protocol: str = DEFAULT_INFLUX_PROTOCOL,
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
        url = f"{self.protocol}://{self.server}:{self.port}{path}?{urlencode(query)}"
        request = Request(url, data, {"Content-Type": "text/plain; charset=utf-8"})  # noqa: S310 - the caller's server
        if self.username:
            credentials = b64encode(f"{self.username}:{self.password or ''}".encode()).decode()
            request.add_header("Authorization", f"Basic {credentials}")
        try:
            with urlopen(request, timeout=TIMEOUT) as response:
                response.read()
        except HTTPError as error:
            with error:
                body = error.read(500).decode(errors="replace").strip()
            self._fail(path, f"it returned {error.code}: {body}")
        except (OSError, HTTPException) as error:
            self._fail(path, f"it can't be reached: {error}")
        else:
            return True
        return False

    def _fail(self, path: str, reason: str) -> None:
        self.failures += 1
        LOG.warning("InfluxDB at %s:%s, %s: %s", self.server, self.port, path, reason)


def _line(key: str, attributes: dict[str, Any], seconds: int) -> str | None:
    fields = [f"{name}={text}" for name, value in attributes.items() if (text := _field(value)) is not None]
    # A backslash at the end would escape the next character; `#` at the start would make the line a comment.
    measurement = (key + "_" if key.endswith("\\") else key).translate(_MEASUREMENT)
    measurement = "_" + measurement if measurement[:1] in ("", "#") else measurement
    return f"{measurement} {','.join(fields)} {seconds}" if fields else None


def _field(value: Any) -> str | None:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value) if isinstance(value, int | float) and math.isfinite(value) else None
