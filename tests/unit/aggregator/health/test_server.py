"""The HTTP server on a real port."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import ExitStack

import pytest

from support.health import slow_client
from support.wait import wait_until
from tallystream.errors import ConfigError
from tallystream.testing import ManualClock
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.health.server import HealthServer, Response

SLOW = 100
"""Clients that never finish their requests."""
MOST = 64
"""Connections that a server keeps open at once."""


def set_function(port: int, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Return the status, the media type and the body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def test_the_responses_follow_the_status_of_the_query() -> None:
    """They are 200, or 503 with the reason in JSON. HEAD has no body, and other paths are 404."""
    with Health("aggregate", HealthSettings(0), clock=ManualClock()) as health:
        assert health.port is not None
        status, kind, body = set_function(health.port, "/readyz")
        assert (status, kind) == (503, "application/json")
        expected = {"ok": False, "reason": "starting", "command": "aggregate", "stage": "starting", "batch": None}
        assert json.loads(body) == expected
        assert set_function(health.port, "/healthz")[0] == 200
        health.status.run()
        health.status.checked(4)
        status, _, body = set_function(health.port, "/readyz?verbose")
        assert (status, json.loads(body)["batch"]) == (200, 4)
        status, kind, body = set_function(health.port, "/metrics")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert 'tallystream_ready{command="aggregate"} 1\n' in body
        assert set_function(health.port, "/metrics", "HEAD")[2] == ""
        assert set_function(health.port, "/")[0] == 404
        port = health.port
    with pytest.raises(ConnectionRefusedError):
        set_function(port, "/healthz")


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
        raise RuntimeError("a fault of ours")

    server = HealthServer({"/bad": fail, "/good": lambda: Response(200, "text/plain", "x")}, port=0)
    try:
        with pytest.raises(http.client.RemoteDisconnected):
            set_function(server.port, "/bad")
        assert set_function(server.port, "/good")[2] == "x"
    finally:
        server.close()
    assert "a fault of ours" in caplog.text


def _open(connection: socket.socket) -> bool:
    """Send one more byte of a request, and tell whether the server still holds the connection."""
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
        assert set_function(port, "/healthz")[0] == 200
        wait_until(lambda: held() <= MOST, 20, f"no more than {MOST} of {SLOW} slow connections are open")
        assert _open(slow[-1])
