"""The queries of the panels with Grafana's variables replaced, and a client that runs them."""

from __future__ import annotations

import json
import re
import urllib.parse
import urllib.request
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tallystream_dashboards.grafana.generate import dashboards
from tallystream_dashboards.grafana.settings import Settings

if TYPE_CHECKING:
    from support.influxd import InfluxServer

ONE_METRIC = ("Metric", "Instances")
"""The dashboards that show one metric."""
METRIC_OF = {
    "Gauge": "queue.7",
    "Value by instance": "queue.7",
    "Quantiles": "request.time.9",
    "Rates as the instances report them": "requests.8",
}
"""The selected metric of a panel that shows another type than a counter."""
WIDTH = 1_000
"""The points in the width of a graph. The window of a query is the time divided by it, and at least ten seconds."""

TIMEOUT_S = 60

Panel = tuple[str, str, list[str]]
"""Dashboard, title, and queries in Flux."""


def panels(part: str) -> list[Panel]:
    """Return every panel with `part` in its title."""
    return [
        (model["title"].removeprefix("Tallystream "), panel["title"], [target["query"] for target in panel["targets"]])
        for model in dashboards(Settings()).values()
        for panel in model["panels"]
        if panel["type"] != "row" and part in panel["title"]
    ]


def replace_variables(text: str, board: str, title: str, *, end_ms: int, hours: float) -> str:
    """Return the query with its variables and macros replaced, for the last `hours` before `end_ms`."""
    start_ms, step = end_ms - round(hours * 3_600_000), max(10, round(hours * 3600 / WIDTH))
    start, stop = (datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") for ms in (start_ms, end_ms))
    metric = METRIC_OF.get(title, "records.0").replace(".", r"\.") if board in ONE_METRIC else ".*"
    for name, value in {
        "v.timeRangeStart": start,
        "v.timeRangeStop": stop,
        "v.windowPeriod": f"{step}s",
        "${bucket}": "tallystream",
        "${metric:regex}": metric,
    }.items():
        text = text.replace(name, value)
    return re.sub(r"\${\w+:regex}", ".*", text)


class Server:
    """Writes lines to InfluxDB, and runs queries."""

    def __init__(self, server: InfluxServer) -> None:
        self._server = server

    def write(self, lines: str) -> None:
        """Write lines of the line protocol with times in milliseconds."""
        where = urllib.parse.urlencode({"org": self._server.org, "bucket": self._server.bucket, "precision": "ms"})
        self._post(f"/api/v2/write?{where}", lines.encode(), "text/plain")

    def rows(self, text: str) -> int:
        """Run a query and return the number of rows in the response."""
        body = json.dumps({"query": text, "dialect": {"annotations": [], "header": False}}).encode()
        response = self._post(f"/api/v2/query?org={self._server.org}", body, "application/json")
        if b"\r\n,error" in response:
            raise RuntimeError(response[-500:].decode())
        return sum(1 for line in response.splitlines() if line)

    def _post(self, path: str, body: bytes, kind: str) -> bytes:
        headers = {"Authorization": f"Token {self._server.token}", "Content-Type": kind}
        request = urllib.request.Request(self._server.url + path, body, headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            return bytes(response.read())
