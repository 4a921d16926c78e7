"""A stub of an OTLP receiver: it keeps the requests, and a test chooses its responses."""

from __future__ import annotations

import gzip
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tallystream_aggregator.sinks.otlp.sink import PROBE

if TYPE_CHECKING:
    from collections.abc import Callable

PROBED = [-1]
"""The counts of a request with the sink's probe."""


class Request(NamedTuple):
    """A received request: the counts of its counters in order, its path and its headers."""

    counts: list[int]
    path: str
    headers: dict[str, str]
    client_port: int


class Response(NamedTuple):
    """A response of the receiver."""

    status: int = 200
    body: bytes = b""
    kind: str = "application/x-protobuf"
    retry_after: str | None = None


OK = Response()


class Receiver:
    """A receiver on loopback that keeps all requests. `respond` returns the response to each."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.respond: Callable[[list[int]], Response] = lambda _: OK
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = Thread(target=self.server.serve_forever, args=(0.02,))

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


def _handler(receiver: Receiver) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = gzip.decompress(self.rfile.read(int(self.headers["Content-Length"])))
            resources = ExportMetricsServiceRequest.FromString(body).resource_metrics
            metrics = [metric for resource in resources for scope in resource.scope_metrics for metric in scope.metrics]
            counts = [one.as_int for metric in metrics for one in metric.sum.data_points]
            counts += PROBED * sum(metric.name == PROBE.measurement for metric in metrics)
            headers = {name.lower(): ", ".join(self.headers.get_all(name, ())) for name in self.headers}
            receiver.requests.append(Request(counts, self.path, headers, self.client_address[1]))
            response = receiver.respond(counts)
            self.send_response(response.status)
            if response.retry_after is not None:
                self.send_header("Retry-After", response.retry_after)
            self.send_header("Content-Type", response.kind)
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    return Handler
