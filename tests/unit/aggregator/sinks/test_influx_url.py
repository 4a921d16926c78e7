"""A URL at which another server answers, instead of InfluxDB."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.influxdb.sink import InfluxStore

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = b"<!doctype html><html><body>Log in</body></html>"


class Other(BaseHTTPRequestHandler):
    """A server that answers every write with a page. The first part of the path is the status."""

    def do_POST(self) -> None:
        """Answer with the page."""
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(int(self.path.split("/")[1]))
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(PAGE)))
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    """The URL of the server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, "refuses a write of no points: 400 Bad Request"),
        (413, "refuses a write of no points: 413"),
        (422, "refuses a write of no points: 422"),
        (200, "answers a write with 200"),
        (202, "answers a write with 202"),
    ],
)
def test_the_setup_of_another_server_names_the_url(url: str, status: int, reason: str) -> None:
    """The error is permanent: it is not an outage."""
    store = InfluxStore(f"{url}/{status}", token="token", org="org", bucket="bucket")
    with pytest.raises(ConfigError, match=rf"^--store: 'influxdb:{url}/{status}' .*the server {reason}.*give the URL"):
        store.setup()
    store.close()


def test_a_page_is_no_confirmation_of_a_write(url: str) -> None:
    """Only InfluxDB's status 204 is: a proxy may require a login later, too."""
    store = InfluxStore(f"{url}/200", token="token", org="org", bucket="bucket")
    with pytest.raises(ConfigError, match="answers a write with 200"):
        store.write([Point("orders", {"app": "shop"}, {"count": 1}, 1_700_000_000_000)])
    store.close()
