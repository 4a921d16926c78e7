"""The HTTP server of `/metrics`, `/healthz` and `/readyz`."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from threading import Thread
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, Metric, generate_latest

from tallystream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

log = logging.getLogger(__name__)

TIMEOUT_S = 30.0
"""Seconds that a connection waits for the client. Each takes a thread and a file descriptor."""

HOSTS_ENV = "TALLYSTREAM_ALLOWED_HOSTS"


class AllowedHosts:
    """The hosts that a request may name, so that no web page reads a server on loopback through its visitor's browser.

    A page can let its own name resolve to 127.0.0.1 (DNS rebinding). The browser then takes the server for a part of
    the page, but names the page's host in the request. So a request may name every IP address, localhost, and the names
    in `TALLYSTREAM_ALLOWED_HOSTS`, separated by commas.

    A server that does not listen on loopback, or that has a password, answers to any name unless that variable is set.

    Args:
        address: the address that the server listens on.
        has_password: whether the server requires one.
        env: the environment.
    """

    def __init__(self, address: str, *, has_password: bool = False, env: Mapping[str, str] | None = None) -> None:
        given = (os.environ if env is None else env).get(HOSTS_ENV, "")
        self._names = {name.strip().lower() for name in given.split(",") if name.strip()}
        self._all = not self._names and (has_password or not _is_loopback(address))

    def refusal(self, host: str) -> str | None:
        """Return why a request with this `Host` is refused, None if it is not. A browser always sends a host."""
        if self._all or not host:
            return None
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            name = ""
        if name in self._names or name == "localhost" or name.endswith(".localhost") or _is_address(name):
            return None
        return f"The host {host!r} is not allowed: use localhost or an IP address, or name it in {HOSTS_ENV}.\n"


def _is_loopback(address: str) -> bool:
    return address == "localhost" or (_is_address(address) and ip_address(address).is_loopback)


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class Response(NamedTuple):
    """An HTTP response: status, media type, and the body."""

    status: int
    content_type: str
    text: str


def health_response(reason: str | None, **known: Any) -> Response:
    """Return 200 if `reason` is None, else 503 with the reason. `known` are further fields of the JSON body."""
    body = {"ok": reason is None, **({} if reason is None else {"reason": reason}), **known}
    return json_response(200 if reason is None else 503, body)


def json_response(status: int, content: dict[str, Any]) -> Response:
    """Return an object as JSON."""
    return Response(status, "application/json", json.dumps(content, ensure_ascii=False) + "\n")


class _Families(NamedTuple):
    """A collector of prometheus_client."""

    families: Iterable[Metric]

    def collect(self) -> Iterable[Metric]:
        """Return the families."""
        return self.families


def metrics_response(families: Iterable[Metric]) -> Response:
    """Return 200 with the families in Prometheus' text format. Numbers are floats there."""
    return Response(200, CONTENT_TYPE_PLAIN_0_0_4, generate_latest(_Families(families)).decode())


class HttpServer(ThreadingHTTPServer):
    """Serves GET and HEAD on `paths` until `close`. A `port` of 0 takes a free one.

    `other` is called for all other paths, with the query string. It returns a response, or None for 404. `option` is
    the name of the port in errors. A client that sends or reads nothing for `TIMEOUT_S` is disconnected. `AllowedHosts`
    limits the hosts that requests may name.

    Raises:
        ConfigError: the server can't listen on the address.
    """

    request_queue_size = 128

    def __init__(
        self,
        paths: Mapping[str, Callable[[], Response]],
        *,
        address: str = "127.0.0.1",
        port: int,
        other: Callable[[str], Response | None] = lambda _: None,
        option: str = "--http-port",
    ) -> None:
        self._paths, self._other, self._hosts = paths, other, AllowedHosts(address)
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            super().__init__((address, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = (error.strerror if isinstance(error, OSError) else None) or error
            remedy = f"it can't be listened on at {address} ({reason}): give another port, or 0 for a free one"
            raise ConfigError(option, port, remedy) from error
        self.port = self.server_address[1]
        self.url = f"http://[{address}]:{self.port}" if ":" in address else f"http://{address}:{self.port}"
        # A close takes up to a tenth of a second.
        self._thread = Thread(target=self.serve_forever, args=(0.1,), name="tallystream-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the server. Further calls do nothing."""
        self.shutdown()
        self.server_close()
        self._thread.join(5)

    def respond(self, path: str, host: str) -> Response:
        """Return the response to a request for a path, with its query string, which names a host."""
        refusal = self._hosts.refusal(host)
        if refusal is not None:
            return Response(HTTPStatus.MISDIRECTED_REQUEST, "text/plain; charset=utf-8", refusal)
        make = self._paths.get(path.partition("?")[0])
        missing = Response(404, "text/plain", f"there are {', '.join(sorted(self._paths))}\n")
        return make() if make is not None else self._other(path) or missing

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 (the library's signature)
        """Log the error, as a debug message if the client closed the connection."""
        error = sys.exc_info()[1]
        level = logging.DEBUG if isinstance(error, OSError) else logging.ERROR
        log.log(level, "a request of %s failed", client_address, exc_info=error)


class _Handler(BaseHTTPRequestHandler):
    server: HttpServer
    server_version, sys_version = "tallystream", ""
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        """Send the response."""
        response = self.server.respond(self.path, self.headers.get("Host", ""))
        body = response.text.encode()
        self.send_response(response.status)
        self.send_header("Content-Type", response.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 (the library's name)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the library's name)
        """Log requests as debug messages: probes come every few seconds."""
        log.debug(format, *args)
