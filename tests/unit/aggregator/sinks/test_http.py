"""Why a server gave no answer, in words."""

from __future__ import annotations

import socket
from contextlib import closing
from threading import Thread

import pytest
import urllib3

from tallystream_aggregator.sinks.http import connection_problem

CLOSED = "it closed the connection before its answer was complete"


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", CLOSED),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf", CLOSED),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "its answer is not HTTP"),
    ],
)
def test_what_a_server_does_is_said_in_words(answer: bytes, problem: str) -> None:
    """A server closes the connection without an answer or within it, or it is no HTTP server."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            connection, _ = server.accept()
            connection.recv(65_536)
            connection.sendall(answer)
            connection.close()

        thread = Thread(target=serve, daemon=True)
        thread.start()
        assert _problem(server.getsockname()[1]) == problem
        thread.join()


def test_what_a_server_does_not_do_is_said_in_words() -> None:
    """Nobody listens, or the server is silent. No number of an error and no name of a class is in the text."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        assert _problem(port) == "it does not answer in time"
    assert _problem(port) == "Connection refused"


def _problem(port: int) -> str:
    with pytest.raises(urllib3.exceptions.HTTPError) as caught:
        urllib3.PoolManager(retries=False).request("GET", f"http://127.0.0.1:{port}/", timeout=0.2)
    return connection_problem(caught.value)
