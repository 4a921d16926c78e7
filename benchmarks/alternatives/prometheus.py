"""Prometheus that scrapes the same updates once a second: what it takes while it stores them."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from benchmarks.aggregator.load import Fleet, Updates
from benchmarks.aggregator.usage import Meter
from benchmarks.alternatives.vmagent import as_text
from tallystream_cli.servers.process import free_port, spawn, terminate

if TYPE_CHECKING:
    from pathlib import Path

CONFIG = """
scrape_configs:
- job_name: fleet
  scrape_interval: 1s
  honor_labels: true
  static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
MAX_WAIT_S = 600.0


def measure(binary: Path, folder: Path, n: int) -> dict[str, Any]:
    """Let Prometheus scrape about `n` updates in complete rounds, each round in one scrape."""
    fleet, updates, scraped = Fleet(), Updates(Fleet()), Event()
    bodies = [as_text(fleet, updates.take(fleet.rows)) + b"\n" for _ in range(n // fleet.rows)]
    left = iter(bodies)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = next(left, None)
            if body is None:
                scraped.set()
            self.send_response(503 if body is None else 200)
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    folder.mkdir(parents=True)
    (folder / "prometheus.yml").write_text(CONFIG.format(port=server.server_address[1]), encoding="utf-8")
    command = [
        *(str(binary), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"),
        f"--web.listen-address=127.0.0.1:{free_port()}",
    ]
    process = spawn(command, folder / "log")
    try:
        with Meter(process.pid) as meter:
            if not scraped.wait(MAX_WAIT_S):
                raise RuntimeError(f"Prometheus does not scrape; its log is {folder / 'log'}")
            return {"updates": len(bodies) * fleet.rows, "cpu_s": meter.cpu_s(), "peak_mb": meter.peak_bytes / 1e6}
    finally:
        terminate(process, timeout_s=20)
        server.shutdown()
        server.server_close()
