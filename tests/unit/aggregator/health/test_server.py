"""The HTTP server on a real port."""

from __future__ import annotations

import http.client
import json
import socket
from typing import TYPE_CHECKING

import pytest

from support.wait import wait_until
from tallystream.aggregator.health import Health, HealthSettings
from tallystream.aggregator.health.cached import CachedText
from tallystream.aggregator.health.connections import CONNECTIONS, DEADLINE_S
from tallystream.aggregator.health.server import Answer, HealthServer
from tallystream.reporter.errors import ConfigError
from tallystream.reporter.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str, str]:
    """Return the status, the media type and the body."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def test_the_answers_follow_what_the_query_does() -> None:
    """200 or 503 with the reason in JSON; the figures as Prometheus reads them; HEAD has no body; others are 404."""
    with Health("aggregate", HealthSettings(0), clock=ManualClock()) as health:
        assert health.port is not None
        status, kind, body = ask(health.port, "/readyz")
        assert (status, kind) == (503, "application/json")
        said = {"ok": False, "reason": "starting", "command": "aggregate", "stage": "starting", "batch": None}
        assert json.loads(body) == said
        assert ask(health.port, "/healthz")[0] == 200
        health.status.run()
        health.status.look(4)
        status, _, body = ask(health.port, "/readyz?verbose")
        assert (status, json.loads(body)["batch"]) == (200, 4)
        status, kind, body = ask(health.port, "/metrics")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        assert 'tallystream_ready{command="aggregate"} 1\n' in body
        assert ask(health.port, "/metrics", "HEAD")[2] == ""
        assert ask(health.port, "/")[0] == 404
        port = health.port
    with pytest.raises(ConnectionRefusedError):
        ask(port, "/healthz")


def test_a_taken_port_is_one_sentence() -> None:
    """It names the option, the port and the address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"--http-port: {port} can't be used; 127.0.0.1 can't be listened on"):
            HealthServer({}, port=port)


def test_without_a_port_nothing_listens() -> None:
    """The server is there by choice."""
    with Health("ship", HealthSettings()) as health:
        assert health.port is None


def test_an_answer_that_fails_is_logged_and_the_next_one_is_made(caplog: pytest.LogCaptureFixture) -> None:
    """A fault of ours ends one request, is an error in the log, and no more."""

    def fail() -> Answer:
        raise RuntimeError("a fault of ours")

    server = HealthServer({"/bad": fail, "/good": lambda: Answer(200, "text/plain", "x")}, port=0)
    try:
        with pytest.raises(http.client.RemoteDisconnected):
            ask(server.port, "/bad")
        assert ask(server.port, "/good")[2] == "x"
    finally:
        server.close()
    assert "a fault of ours" in caplog.text


@pytest.fixture
def clock() -> ManualClock:
    """The server's clock."""
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> Iterator[HealthServer]:
    """A server with a short answer and a long one."""
    paths = {
        "/healthz": lambda: Answer(200, "text/plain", "ok"),
        "/large": lambda: Answer(200, "text/plain", b"x" * 100_000_000),
    }
    opened = HealthServer(paths, port=0, clock=clock.monotonic)
    yield opened
    opened.close()


def slow(server: HealthServer, sent: bytes = b"GET /") -> socket.socket:
    """Return a connection that has sent this much of a request."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
    connection.sendall(sent)
    return connection


def test_slow_connections_keep_nobody_out(server: HealthServer) -> None:
    """However many clients connect and send nothing more, so many are open at most, and a request is answered."""
    waiting = [slow(server) for _ in range(CONNECTIONS + 40)]
    try:
        assert ask(server.port, "/healthz")[2] == "ok"
        assert server.connections <= CONNECTIONS
        assert waiting[0].recv(1) == b""
        waiting[-1].sendall(b"healthz HTTP/1.0\r\n\r\n")
        assert waiting[-1].recv(1) == b"H"
    finally:
        for one in waiting:
            one.close()


def test_a_request_that_trickles_in_ends(server: HealthServer, clock: ManualClock) -> None:
    """The deadline is that of the whole request: a byte now and then does not prolong it."""
    with slow(server) as connection:
        wait_until(lambda: server.connections == 1, 30, "the connection is open", poll=0.01)
        for _ in range(int(DEADLINE_S) - 1):
            clock.advance(1)
            connection.sendall(b"x")
        assert server.connections == 1
        clock.advance(2)
        assert connection.recv(1) == b""
        wait_until(lambda: server.connections == 0, 30, "the connection is closed", poll=0.01)
        assert ask(server.port, "/healthz")[2] == "ok"


def test_an_answer_that_is_not_read_ends(server: HealthServer, clock: ManualClock) -> None:
    """A client that asks for much and reads nothing holds its connection no longer than the deadline."""
    with slow(server, b"GET /large HTTP/1.0\r\n\r\n") as connection:
        assert connection.recv(1) == b"H"
        clock.advance(DEADLINE_S + 1)
        wait_until(lambda: server.connections == 0, 30, "the connection is closed", poll=0.01)


def test_answers_go_before_requests_that_have_not_come(server: HealthServer) -> None:
    """Slow clients do not end a connection that is being answered."""
    with slow(server, b"GET /large HTTP/1.0\r\n\r\n") as scraping:
        assert scraping.recv(1) == b"H"
        waiting = [slow(server) for _ in range(CONNECTIONS + 5)]
        try:
            wait_until(lambda: waiting[3].recv(1) == b"", 30, "the slow ones make room")
            received = 1
            while chunk := scraping.recv(1 << 20):
                received += len(chunk)
            assert received > 100_000_000
        finally:
            for one in waiting:
                one.close()


def test_a_text_that_takes_long_is_made_once(clock: ManualClock) -> None:
    """Who asks again gets the same bytes; a newer version is made after five times what the last one took."""
    cached, made = CachedText(clock.monotonic), []

    def make() -> str:
        made.append(len(made))
        clock.advance(2)
        return f"text {len(made)}"

    assert [cached.body(1, make), cached.body(1, make), cached.body(2, make)] == [b"text 1"] * 3
    clock.advance(9.9)
    assert cached.body(3, make) == b"text 1"
    clock.advance(0.2)
    assert cached.body(3, make) == b"text 2"
    clock.advance(60)
    assert cached.body(3, make) == b"text 2"
    cached.clear()
    assert cached.body(3, make) == b"text 3"


def test_a_text_that_is_made_quickly_is_never_old(clock: ManualClock) -> None:
    """Each version is made when it is asked for."""
    cached = CachedText(clock.monotonic)
    assert [cached.body(number, lambda n=number: f"{n}") for number in range(3)] == [b"0", b"1", b"2"]
