"""The Collector's `metricstransform` on the same updates: they are sent as OTLP, and the sums come the same way."""

from __future__ import annotations

import time
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_CUMULATIVE

from benchmarks.aggregator.load import Fleet, Updates, UpdateSlice
from benchmarks.aggregator.usage import Meter
from tallystream_cli.servers.process import free_port, spawn, tail, terminate

if TYPE_CHECKING:
    from pathlib import Path

CONFIG: Final = """
receivers: {{otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{port}"}}}}}}}}
processors:
  metricstransform:
    transforms:
    - include: records.processed.*
      match_type: regexp
      action: update
      operations: [{{action: aggregate_labels, label_set: [], aggregation_type: sum}}]
exporters:
  otlp_http: {{endpoint: "http://127.0.0.1:{destination}", compression: none}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [otlp], processors: [metricstransform], exporters: [otlp_http]}}}}
"""
MAX_WAIT_S: Final = 300.0


def measure(binary: Path, folder: Path, n: int) -> dict[str, Any]:
    """Send about `n` updates in complete rounds, each round in one request, as the processor sums within a request."""
    fleet, updates, newest = Fleet(), Updates(Fleet()), dict[str, int]()
    bodies = [_as_otlp(fleet, updates.take(fleet.rows)) for _ in range(n // fleet.rows)]
    expected = dict(zip(fleet.names, updates.sums.tolist(), strict=True))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = ExportMetricsServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
            for resource in body.resource_metrics:
                for scope in resource.scope_metrics:
                    newest.update((metric.name, metric.sum.data_points[0].as_int) for metric in scope.metrics)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    folder.mkdir(parents=True)
    config, port = folder / "otelcol.yaml", free_port()
    config.write_text(CONFIG.format(port=port, destination=server.server_address[1]), encoding="utf-8")
    process = spawn([str(binary), f"--config={config}"], folder / "log")
    try:
        began = time.monotonic()
        with Meter(process.pid) as meter:
            for body in bodies:
                _post(f"http://127.0.0.1:{port}/v1/metrics", body, began + MAX_WAIT_S, folder / "log")
            while newest != expected and time.monotonic() < began + MAX_WAIT_S:
                time.sleep(0.05)
            wall_s, cpu_s = time.monotonic() - began, meter.cpu_s()
    finally:
        terminate(process, timeout_s=20)
        server.shutdown()
        server.server_close()
    found = {"updates": len(bodies) * fleet.rows, "wall_s": wall_s, "cpu_s": cpu_s, "peak_mb": meter.peak_bytes / 1e6}
    return {**found, "exact": newest == expected}


def _as_otlp(fleet: Fleet, updates: UpdateSlice) -> bytes:
    """Return the readings as a request: a metric for each name, with a point for each instance.

    The points have one time, as the processor adds up what has the same.
    """
    now, request = time.time_ns(), ExportMetricsServiceRequest()
    scope = request.resource_metrics.add().scope_metrics.add()
    counters = []
    for name in fleet.names:
        metric = scope.metrics.add(name=name)
        metric.sum.is_monotonic, metric.sum.aggregation_temporality = True, AGGREGATION_TEMPORALITY_CUMULATIVE
        counters.append(metric.sum)
    for number, reading in enumerate(updates.readings.tolist()):
        point = counters[number % fleet.metrics].data_points.add(as_int=reading, time_unix_nano=now)
        instance = point.attributes.add(key="instance").value
        instance.string_value = fleet.keys[number // fleet.metrics % fleet.instances].decode()
    return request.SerializeToString()


def _post(url: str, body: bytes, until: float, log: Path) -> None:
    """Send a request. It is repeated until the Collector listens."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/x-protobuf"})
    while True:
        try:
            urllib.request.urlopen(request, timeout=60).close()
        except OSError as error:
            if time.monotonic() > until:
                raise RuntimeError(f"the Collector takes no request: {error}\n{tail(log)}") from error
            time.sleep(0.05)
        else:
            return
