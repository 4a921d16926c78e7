"""The HTTP server of `/metrics`, `/healthz` and `/readyz`, with a limit of open connections."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import sys
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple

from tallystream.errors import ConfigError
from tallystream_aggregator.health.hosts import AllowedHosts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)


class CachedText:
    """Caches a UTF-8 text. Thread-safe: one thread renders the text while others wait."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._version: object = None
        self._body: bytes | None = None

    def body(self, version: object, make: Callable[[], str]) -> bytes:
        """Return the text of this version."""
        with self._lock:
            if self._body is None or version != self._version:
                self._body, self._version = make().encode(), version
            return self._body


CONNECTIONS = 64
"""The most open connections. Each takes a thread and a file descriptor."""
DEADLINE_S = 30.0
"""Seconds from the connection to the last byte of the response."""


class BoundedServer(ThreadingHTTPServer):
    """Closes connections that are open for too long, and the oldest one beyond `CONNECTIONS`.

    `clock` is monotonic, in seconds.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], clock: Callable[[], float]
    ) -> None:
        self._clock = clock
        self._lock = Lock()
        self._open: dict[socket.socket, float] = {}
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection. Close others first if there are too many."""
        with self._lock:
            while len(self._open) >= CONNECTIONS:
                self._end(next(iter(self._open)))
            self._open[request] = self._clock()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close connections that are open for too long. The library calls this at least twice a second."""
        with self._lock:
            began = self._clock() - DEADLINE_S
            for request in [one for one, opened in self._open.items() if opened < began]:
                self._end(request)

    def shutdown_request(self, request: Any) -> None:
        """Close the connection."""
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 (the library's signature)
        """Log the error, as a debug message if the client or the limits closed the connection."""
        error = sys.exc_info()[1]
        level = logging.DEBUG if isinstance(error, OSError) else logging.ERROR
        log.log(level, "a request of %s failed", client_address, exc_info=error)

    def _end(self, request: socket.socket) -> None:
        """Shut the connection down, so that its thread fails at the next read or write. The lock must be held."""
        self._open.pop(request, None)
        with contextlib.suppress(OSError):  # the client has gone
            request.shutdown(socket.SHUT_RDWR)


class Response(NamedTuple):
    """An HTTP response: status, media type, and the body as text or as bytes in UTF-8."""

    status: int
    content_type: str
    body: str | bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode() if isinstance(self.body, bytes) else self.body


def health_response(reason: str | None, **known: Any) -> Response:
    """Return 200 if `reason` is None, else 503 with the reason. `known` are further fields of the JSON body."""
    body = {"ok": reason is None, **({} if reason is None else {"reason": reason}), **known}
    return Response(200 if reason is None else 503, "application/json", json.dumps(body) + "\n")


class HealthServer:
    """Serves GET and HEAD on `paths` until `close`. A `port` of 0 takes a free one.

    `other` is called for all other paths, with the query string. It returns a response, or None for 404. `option` is
    the name of the port in errors, `clock` is monotonic. Connections are limited in number and time (`BoundedServer`),
    and requests in the hosts that they name (`AllowedHosts`).

    Raises:
        ConfigError: the server can't listen on the address.
    """

    def __init__(
        self,
        paths: Mapping[str, Callable[[], Response]],
        *,
        address: str = "127.0.0.1",
        port: int,
        other: Callable[[str], Response | None] = lambda _: None,
        option: str = "--http-port",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            self._server = BoundedServer((address, port), _handler(paths, other, AllowedHosts(address)), clock)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                option, port, f"cannot listen on {address} ({error}): give another port, or 0 for a free one"
            ) from error
        self.address, self.port = address, self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, name="tallystream-health", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the server. Further calls do nothing."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def _handler(
    paths: Mapping[str, Callable[[], Response]], other: Callable[[str], Response | None], hosts: AllowedHosts
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "tallystream", ""

        def do_GET(self) -> None:
            """Send the response."""
            response = self._respond()
            body = response.body if isinstance(response.body, bytes) else response.body.encode()
            self.send_response(response.status)
            self.send_header("Content-Type", response.content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _respond(self) -> Response:
            refusal = hosts.refusal(self.headers.get("Host", ""))
            if refusal is not None:
                return Response(HTTPStatus.MISDIRECTED_REQUEST, "text/plain; charset=utf-8", refusal)
            make = paths.get(self.path.partition("?")[0])
            missing = Response(404, "text/plain", f"there are {', '.join(sorted(paths))}\n")
            return make() if make is not None else other(self.path) or missing

        do_HEAD = do_GET  # noqa: N815 (the library's name)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the library's name)
            """Log requests as debug messages: probes come every few seconds."""
            log.debug(format, *args)

    return Handler
