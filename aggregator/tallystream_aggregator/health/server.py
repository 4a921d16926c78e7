"""The HTTP server of a query's health: `/metrics`, `/healthz`, `/readyz`, with a limit of open connections."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tallystream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SLOW_S = 0.1
"""A text that takes less is made again for every version, in seconds."""
PAUSE = 5
"""A slower text is kept for this many times the seconds that it took: making it takes a sixth of a core at most."""


class CachedText:
    """The UTF-8 text of the newest version of something, made by one thread while others wait; for any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._version: object = None
        self._body: bytes | None = None
        self._due = 0.0

    def body(self, version: object, make: Callable[[], str]) -> bytes:
        """Return the text of this version, or of an older one that took long and was made a short time ago."""
        with self._lock:
            began = self._clock()
            if self._body is None or (version != self._version and began >= self._due):
                self._body, self._version = make().encode(), version
                took_s = self._clock() - began
                self._due = self._clock() + (PAUSE * took_s if took_s >= SLOW_S else 0)
            return self._body

    def clear(self) -> None:
        """Forget the text: the next one is made when it is asked for."""
        with self._lock:
            self._body = None


log = logging.getLogger(__name__)

CONNECTIONS = 64
"""So many connections are open at once: a thread and a descriptor each."""
DEADLINE_S = 30.0
"""Seconds from the connection to the last byte of the answer, whatever the client does."""


class BoundedServer(ThreadingHTTPServer):
    """Ends what is open for too long; of more connections than `CONNECTIONS` the oldest ends.

    One whose request has not come yet ends before one that is being answered. `clock` is monotonic, seconds.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], clock: Callable[[], float]
    ) -> None:
        self._clock = clock
        self._lock = Lock()
        self._waiting: dict[socket.socket, float] = {}
        self._answered: dict[socket.socket, float] = {}
        super().__init__(address, handler)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        with self._lock:
            return len(self._waiting) + len(self._answered)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a connection's thread; make room for it before."""
        with self._lock:
            while len(self._waiting) + len(self._answered) >= CONNECTIONS:
                self._end(next(iter(self._waiting or self._answered)))
            self._waiting[request] = self._clock()
        super().process_request(request, client_address)

    def respond(self, request: socket.socket) -> None:
        """Note that the connection's request has come."""
        with self._lock:
            if request in self._waiting:
                self._answered[request] = self._waiting.pop(request)

    def service_actions(self) -> None:
        """End what is open for too long; the library calls this between connections, twice a second at least."""
        with self._lock:
            began = self._clock() - DEADLINE_S
            for request in [one for open_ in (self._waiting, self._answered) for one in open_ if open_[one] < began]:
                self._end(request)

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection, and close it."""
        with self._lock:
            self._waiting.pop(request, None)
            self._answered.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 (the library's signature)
        """Log what failed; a connection that the client or the limits ended is no fault of ours."""
        error = sys.exc_info()[1]
        level = logging.DEBUG if isinstance(error, OSError) else logging.ERROR
        log.log(level, "a request of %s failed", client_address, exc_info=error)

    def _end(self, request: socket.socket) -> None:
        """Let the connection's thread fail at its next read or write, and close it; the lock is held."""
        self._waiting.pop(request, None)
        self._answered.pop(request, None)
        with contextlib.suppress(OSError):  # the client has gone
            request.shutdown(socket.SHUT_RDWR)


class Response(NamedTuple):
    """What a path says: an HTTP status, a media type, and the text, in UTF-8 where it is bytes."""

    status: int
    content_type: str
    body: str | bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode() if isinstance(self.body, bytes) else self.body


def health_response(reason: str | None, **known: Any) -> Response:
    """Return 200 where there is no reason against it, 503 with the reason otherwise; `known` is said beside it."""
    said = {"ok": reason is None, **({} if reason is None else {"reason": reason}), **known}
    return Response(200 if reason is None else 503, "application/json", json.dumps(said) + "\n")


class HealthServer:
    """Answers GET and HEAD on `paths`, from its making to `close`. A `port` of 0 takes a free one.

    `other` answers, or returns None, for what is in no path: it gets the path as it was asked for, query and all.
    `option` is what an error calls the port, `clock` is monotonic. Connections and their time are limited: see
    `BoundedServer`.

    Raises:
        ConfigError: the address can't be listened on.
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
            self._server = BoundedServer((address, port), _handler(paths, other), clock)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                option, port, f"{address} can't be listened on ({error}): give another one, or 0"
            ) from error
        self.address, self.port = address, self._server.server_address[1]
        self._thread = Thread(target=self._server.serve_forever, name="tallystream-health", daemon=True)
        self._thread.start()

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return self._server.connections

    def close(self) -> None:
        """Stop listening; safe to call again."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def _handler(
    paths: Mapping[str, Callable[[], Response]], other: Callable[[str], Response | None]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "tallystream", ""

        def do_GET(self) -> None:
            """Answer."""
            cast("BoundedServer", self.server).respond(self.connection)
            make = paths.get(self.path.partition("?")[0])
            missing = Response(404, "text/plain", f"there are {', '.join(sorted(paths))}\n")
            response = make() if make is not None else other(self.path) or missing
            body = response.body if isinstance(response.body, bytes) else response.body.encode()
            self.send_response(response.status)
            self.send_header("Content-Type", response.content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 (the library's name)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the library's name)
            """A probe every few seconds is no news."""
            log.debug(format, *args)

    return Handler
