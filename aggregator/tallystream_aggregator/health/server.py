"""The HTTP server of a query's health: `/metrics`, `/healthz`, `/readyz`, in threads of the process itself."""

from __future__ import annotations

import json
import logging
import time
from http.server import BaseHTTPRequestHandler
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from tallystream.errors import ConfigError
from tallystream_aggregator.health.connections import BoundedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

log = logging.getLogger(__name__)


class Answer(NamedTuple):
    """What a path says: an HTTP status, a media type, and the text, in UTF-8 where it is bytes."""

    status: int
    content_type: str
    body: str | bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode() if isinstance(self.body, bytes) else self.body


def verdict(reason: str | None, **known: Any) -> Answer:
    """Return 200 where there is no reason against it, 503 with the reason otherwise; `known` is said beside it."""
    said = {"ok": reason is None, **({} if reason is None else {"reason": reason}), **known}
    return Answer(200 if reason is None else 503, "application/json", json.dumps(said) + "\n")


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
        paths: Mapping[str, Callable[[], Answer]],
        *,
        address: str = "127.0.0.1",
        port: int,
        other: Callable[[str], Answer | None] = lambda _: None,
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
    paths: Mapping[str, Callable[[], Answer]], other: Callable[[str], Answer | None]
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "tallystream", ""

        def do_GET(self) -> None:
            """Answer."""
            cast("BoundedServer", self.server).answer(self.connection)
            make = paths.get(self.path.partition("?")[0])
            missing = Answer(404, "text/plain", f"there are {', '.join(sorted(paths))}\n")
            answer = make() if make is not None else other(self.path) or missing
            body = answer.body if isinstance(answer.body, bytes) else answer.body.encode()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 (the library's name)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the library's name)
            """A probe every few seconds is no news."""
            log.debug(format, *args)

    return Handler
