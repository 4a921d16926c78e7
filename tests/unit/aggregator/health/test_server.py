"""The HTTP server on a real port, its limits of connections, and its cache of a text."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from support.health import ask, slow_client
from support.wait import wait_until
from tallystream.errors import ConfigError
from tallystream.testing import ManualClock
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.health.server import CONNECTIONS, DEADLINE_S, CachedText, HealthServer, Response

if TYPE_CHECKING:
    from collections.abc import Iterator

SLOW = 100
"""Clients that never finish their requests."""


def request(port: int, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Return the status, the media type and the body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return response.status, response.headers["Content-Type"], response.read().decode()
    finally:
        connection.close()


def test_the_responses_follow_the_status_of_the_query() -> None:
    """They are 200, or 503 with the reason in JSON. HEAD has no body, and other paths are 404."""
    with Health("aggregate", HealthSettings(0), clock=ManualClock()) as health:
        assert health.port is not None
        status, kind, body = request(health.port, "/readyz")
        assert (status, kind) == (503, "application/json")
        expected = {"ok": False, "reason": "starting", "command": "aggregate", "stage": "starting"}
        assert json.loads(body) == expected
        assert request(health.port, "/healthz")[0] == 200
        health.status.run()
        health.status.checked()
        assert request(health.port, "/readyz?verbose")[0] == 200
        status, kind, body = request(health.port, "/metrics")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert 'tallystream_ready{command="aggregate"} 1\n' in body
        assert request(health.port, "/metrics", "HEAD")[2] == ""
        assert request(health.port, "/")[0] == 404
        port = health.port
    with pytest.raises(ConnectionRefusedError):
        request(port, "/healthz")


def test_the_error_of_a_port_in_use_names_it() -> None:
    """It names the option and the address, too."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"--http-port: {port} can't be used; cannot listen on 127.0.0.1"):
            HealthServer({}, port=port)


def test_there_is_no_server_without_a_port() -> None:
    """The server is optional."""
    with Health("ship", HealthSettings()) as health:
        assert health.port is None


def test_a_request_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The next request gets its response."""

    def fail() -> Response:
        raise RuntimeError("an internal error")

    server = HealthServer({"/bad": fail, "/good": lambda: Response(200, "text/plain", "x")}, port=0)
    try:
        with pytest.raises(http.client.RemoteDisconnected):
            request(server.port, "/bad")
        assert request(server.port, "/good")[2] == "x"
    finally:
        server.close()
    assert "an internal error" in caplog.text


def _open(connection: socket.socket) -> bool:
    """Send one more byte of a request, and return whether the connection is open."""
    connection.setblocking(False)
    try:
        connection.send(b"x")
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_slow_clients_do_not_block_other_requests() -> None:
    """Of clients that send single bytes only the newest stay connected."""
    with Health("aggregate", HealthSettings(0)) as health, ExitStack() as clients:
        port = health.port
        assert port is not None
        slow: list[socket.socket] = []

        def held() -> int:
            return sum(_open(client) for client in slow)

        while len(slow) < SLOW:
            slow.append(clients.enter_context(slow_client(port)))
            held()
        assert request(port, "/healthz")[0] == 200
        wait_until(lambda: held() <= CONNECTIONS, 20, f"no more than {CONNECTIONS} of {SLOW} slow connections are open")
        assert _open(slow[-1])


@pytest.fixture
def clock() -> ManualClock:
    """The server's clock."""
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> Iterator[HealthServer]:
    """A server with a short response and a long one."""
    paths = {
        "/healthz": lambda: Response(200, "text/plain", "ok"),
        "/large": lambda: Response(200, "text/plain", b"x" * 100_000_000),
    }
    opened = HealthServer(paths, port=0, clock=clock.monotonic)
    yield opened
    opened.close()


def connections(server: HealthServer) -> int:
    """Return the number of open connections."""
    return len(server._server._open)


def test_a_slow_request_is_closed(server: HealthServer, clock: ManualClock) -> None:
    """The deadline applies to the complete request: single bytes do not prolong it."""
    with slow_client(server.port) as connection:
        wait_until(lambda: connections(server) == 1, 30, "the connection is open", poll=0.01)
        for _ in range(int(DEADLINE_S) - 1):
            clock.advance(1)
            connection.sendall(b"x")
        assert connections(server) == 1
        clock.advance(2)
        assert connection.recv(1) == b""
        wait_until(lambda: connections(server) == 0, 30, "the connection is closed", poll=0.01)
        assert ask(f"http://127.0.0.1:{server.port}/healthz") == (200, "ok")


def test_a_response_that_is_not_read_is_closed(server: HealthServer, clock: ManualClock) -> None:
    """The connection is closed at the deadline."""
    with slow_client(server.port, b"GET /large HTTP/1.0\r\n\r\n") as connection:
        assert connection.recv(1) == b"H"
        clock.advance(DEADLINE_S + 1)
        wait_until(lambda: connections(server) == 0, 30, "the connection is closed", poll=0.01)


def test_a_text_is_rendered_once_for_each_version() -> None:
    """Clients that come at the same time get the same text."""
    cached, rendered = CachedText(), list[int]()

    def render() -> str:
        rendered.append(len(rendered))
        return f"text {len(rendered)}"

    assert [cached.body(version, render) for version in (1, 1, 2, 2)] == [b"text 1"] * 2 + [b"text 2"] * 2
