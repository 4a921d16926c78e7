"""The health check of containers."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from tallystream_cli.health_check import main

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(int(self.path[1:]))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    """A server that answers with the status in the path."""
    with HTTPServer(("127.0.0.1", 0), _Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_only_a_success_is_healthy(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is 0 for a success and 1 for an error, whose reason is on standard error."""
    assert (main(f"{url}/200"), main(f"{url}/503")) == (0, 1)
    assert capsys.readouterr().err == f"{url}/503: HTTP Error 503: Service Unavailable\n"


def test_no_answer_is_not_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    """A closed port and an address that is no URL are failures, not tracebacks."""
    assert (main("http://127.0.0.1:9/healthz"), main("healthz")) == (1, 1)
    assert len(capsys.readouterr().err.splitlines()) == 2
