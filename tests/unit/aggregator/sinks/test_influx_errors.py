"""What a response of InfluxDB means: a refused point, a wrong setting, or an outage."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.sinks.base import Point, SinkUnavailableError
from tallystream_aggregator.sinks.influxdb.sink import InfluxStore

if TYPE_CHECKING:
    from collections.abc import Iterator


class Refusing(BaseHTTPRequestHandler):
    """A server that answers every request with the status and message in `answer`."""

    answer = (400, "")

    def do_POST(self) -> None:
        """Refuse the request."""
        self.rfile.read(int(self.headers["Content-Length"]))
        status, message = self.answer
        body = json.dumps({"message": message}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def store() -> Iterator[InfluxStore]:
    """A store at such a server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    store = InfluxStore(f"http://127.0.0.1:{server.server_address[1]}", token="token", org="org", bucket="bucket")
    yield store
    store.close()
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_refused_point_may_have_any_name(store: InfluxStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """InfluxDB's message quotes the name. It is no error of the settings, whatever the name is."""
    message = 'field type conflict: input field "v" on measurement "organization name" is type float'
    monkeypatch.setattr(Refusing, "answer", (400, message))
    (rejected,) = store.write([Point("organization name", {}, {"v": 1.0}, 1)])
    assert rejected.reason.endswith(message)


def test_the_error_of_a_query_says_what_it_means(store: InfluxStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown organization is a wrong setting, another refusal names the server, and an outage passes."""
    monkeypatch.setattr(Refusing, "answer", (400, "organization name 'org' not found"))
    with pytest.raises(ConfigError, match="there is no such bucket in the organization 'org'"):
        store.measurements()
    monkeypatch.setattr(Refusing, "answer", (400, "compilation failed"))
    with pytest.raises(TallystreamError, match=r"^InfluxDB http://127\.0\.0\.1:\d+: compilation failed"):
        store.measurements()
    monkeypatch.setattr(Refusing, "answer", (500, "organization name can't be read"))
    with pytest.raises(SinkUnavailableError):
        store.measurements()
