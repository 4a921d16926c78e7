"""A limit of open connections and of their time, for a threading server: nobody can keep others out by being slow."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

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

    def answer(self, request: socket.socket) -> None:
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
