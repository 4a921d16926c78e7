"""The limits of connections in number and time, with an injected clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.health import ask, slow_client
from support.wait import wait_until
from tallystream.testing import ManualClock
from tallystream_aggregator.health.server import CONNECTIONS, DEADLINE_S, HealthServer, Response

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def clock() -> ManualClock:
    """The server's clock."""
    return ManualClock()


@pytest.fixture
def server(clock: ManualClock) -> Iterator[HealthServer]:
    """A server with a short answer and a long one."""
    paths = {
        "/healthz": lambda: Response(200, "text/plain", "ok"),
        "/large": lambda: Response(200, "text/plain", b"x" * 100_000_000),
    }
    opened = HealthServer(paths, port=0, clock=clock.monotonic)
    yield opened
    opened.close()


def test_a_slow_request_is_closed(server: HealthServer, clock: ManualClock) -> None:
    """The deadline applies to the whole request: single bytes do not prolong it."""
    with slow_client(server.port) as connection:
        wait_until(lambda: server.connections == 1, 30, "the connection is open", poll=0.01)
        for _ in range(int(DEADLINE_S) - 1):
            clock.advance(1)
            connection.sendall(b"x")
        assert server.connections == 1
        clock.advance(2)
        assert connection.recv(1) == b""
        wait_until(lambda: server.connections == 0, 30, "the connection is closed", poll=0.01)
        assert ask(f"http://127.0.0.1:{server.port}/healthz") == (200, "ok")


def test_a_response_that_is_not_read_is_closed(server: HealthServer, clock: ManualClock) -> None:
    """The connection is closed at the deadline."""
    with slow_client(server.port, b"GET /large HTTP/1.0\r\n\r\n") as connection:
        assert connection.recv(1) == b"H"
        clock.advance(DEADLINE_S + 1)
        wait_until(lambda: server.connections == 0, 30, "the connection is closed", poll=0.01)


def test_a_connection_without_a_request_is_closed_first(server: HealthServer) -> None:
    """Slow clients do not end a connection that gets its response."""
    with slow_client(server.port, b"GET /large HTTP/1.0\r\n\r\n") as scraping:
        assert scraping.recv(1) == b"H"
        waiting = [slow_client(server.port) for _ in range(CONNECTIONS + 5)]
        try:
            wait_until(lambda: waiting[3].recv(1) == b"", 30, "the slow ones make room")
            received = 1
            while chunk := scraping.recv(1 << 20):
                received += len(chunk)
            assert received > 100_000_000
        finally:
            for one in waiting:
                one.close()
