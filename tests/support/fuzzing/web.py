"""Requests to the servers: the lag API with the routes of the store, and the page's login."""

from __future__ import annotations

import asyncio
import io
from functools import cache
from pathlib import Path
from typing import Any, cast
from unittest import mock

from support.fuzzing import stores
from support.fuzzing.stores import NOW_MS, empty_path
from support.lag import Rounds, group, round_of
from tallystream_aggregator.http_server import AllowedHosts, HttpServer, Response, _Handler
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_dashboards.lag.collector.http_api import LagApi
from tallystream_dashboards.page.server.access import AccessMiddleware
from tallystream_dashboards.page.server.password import Attempts
from tallystream_dashboards.store_api import routes

STORE = Path(__file__).parents[2] / "releases" / "0.1" / "store.db"
"""A local store with a minute of history: sums, an instance, and groups that go on, have stopped, and are gone."""


class Connection(io.BytesIO):
    """A connection on which a client has sent some bytes. `sent` is the answer."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.sent = b""

    def makefile(self, *_: object) -> Connection:
        """Return what the client has sent."""
        return self

    def settimeout(self, _: object) -> None:
        """Ignore the timeout."""

    def sendall(self, data: bytes) -> None:
        self.sent += data


class Server:
    """A server without a socket."""

    _paths: Any
    respond: Any = HttpServer.respond

    def __init__(self, store: StoreSettings) -> None:
        rounds = Rounds()
        rounds.points(round_of(group("billing", (5, 9), (None, 3)), group("größe / 1", (1, 1), members=0)), NOW_MS)
        self.api = LagApi(2, routes(store, clock=lambda: NOW_MS / 1000), clock=lambda: NOW_MS / 1000)
        self.api.publish(rounds.newest_round)
        self._paths = {"/metrics": self.api.metrics, "/healthz": self.api.health, "/readyz": self.api.readiness}
        self._other, self._hosts = self.api.answer, AllowedHosts("127.0.0.1", env={})


@cache
def _server() -> Server:
    path = empty_path().with_name("served.db")
    path.write_bytes(STORE.read_bytes())
    return Server(StoreSettings.parse(f"local:{path}"))


def points(data: bytes) -> None:
    """Read a store with the points of an input, and answer all questions about what it has."""
    stores.points(data)
    for path in STORED:
        assert _server_of_points().respond(path, "localhost").status in (200, 503)


@cache
def _server_of_points() -> Server:
    return Server(StoreSettings.parse(f"local:{stores.points_path()}"))


STORED = ("/v1/sums", "/v1/instances?app=billing&metric=billing.processed", "/v1/compare", "/v1/groups", "/v1/problems")
"""What is asked of a store with points of somebody else."""


def request(data: bytes) -> None:
    """Answer the bytes that a client sends to the collector's port."""
    connection = Connection(data)
    _Handler(cast("Any", connection), ("127.0.0.1", 1), cast("Any", _server()))


def path(data: bytes) -> None:
    """Answer a request for a path with a query, which is the whole input."""
    response = _server().respond(data.decode("latin-1"), "localhost")
    assert isinstance(response, Response)
    response.text.encode()
    assert response.status in (200, 400, 404, 503)


def page(data: bytes) -> None:
    """Answer a request to the page: lines with method, path, host and cookie, then the login form."""
    lines = data.split(b"\n", 4)
    method, path, host, cookie, body = [*lines, *[b""] * (5 - len(lines))]
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "websocket" if method == b"WS" else "http",
        "scheme": "http",
        "method": method.decode("latin-1"),
        "path": path.partition(b"?")[0].decode("utf-8", "replace"),
        "query_string": path.partition(b"?")[2],
        "headers": [(b"host", host), (b"cookie", cookie), (b"cookie", body[:9])],
        "client": ("10.0.0.1", 1),
        "server": ("page", 80),
    }
    asyncio.run(_page()(scope, receive, send))
    for one in sent:
        for _, value in one.get("headers", ()):
            assert b"\n" not in value
            assert b"\r" not in value


@cache
def _page() -> AccessMiddleware:
    async def app(_scope: Any, _receive: Any, _send: Any) -> None:
        """Do nothing."""

    async def sleep(_seconds: float) -> None:
        """Do not sleep."""

    hosts = AllowedHosts("127.0.0.1", has_password=False, env={})
    attempts = mock.Mock(spec=Attempts, wait_s=lambda _address: 0.0)
    return AccessMiddleware(
        app, password="open sesame", hosts=hosts, attempts=attempts, clock=lambda: NOW_MS / 1000, sleep=sleep
    )
