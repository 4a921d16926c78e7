"""A stub of an OTLP receiver: it keeps the requests, and a test chooses its responses."""

from __future__ import annotations

import gzip
from typing import NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from support.http_stub import HttpStub, Response
from tallystream_aggregator.sinks.otlp.sink import PROBE

__all__ = ["OK", "PROBED", "Receiver", "Request", "Response"]

from collections.abc import Callable

from support import http_stub

PROBED = [-1]
"""The counts of a request with the sink's probe."""


class Request(NamedTuple):
    """A received request: the counts of its counters in order, its path and its headers."""

    counts: list[int]
    path: str
    headers: dict[str, str]
    client_port: int


OK = Response()


class Receiver(HttpStub):
    """A receiver on loopback that keeps all requests. `respond` returns the response to each."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.requests: list[Request] = []
        self.respond: Callable[[list[int]], Response] = lambda _: OK

    def _answer(self, request: http_stub.Request) -> Response:
        resources = ExportMetricsServiceRequest.FromString(gzip.decompress(request.body)).resource_metrics
        metrics = [metric for resource in resources for scope in resource.scope_metrics for metric in scope.metrics]
        counts = [one.as_int for metric in metrics for one in metric.sum.data_points]
        counts += PROBED * sum(metric.name == PROBE.measurement for metric in metrics)
        self.requests.append(Request(counts, request.path, request.headers, request.client_port))
        response = self.respond(counts)
        return response if response.kind is not None else response._replace(kind="application/x-protobuf")
