"""HTTP requests to a command's health server, whose address is in its log."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families


def base(log: Path) -> str:
    """Return the last address of a health server in a log."""
    return str(re.findall(r"health is on (http://[\d.]+:\d+)/metrics", log.read_text())[-1])


def ask(url: str) -> tuple[int, str]:
    """Return the status and the body of a response."""
    try:
        with urllib.request.urlopen(url, timeout=30) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def internal_metrics(url: str) -> dict[str, float]:
    """Return the samples whose only label is `command`, by name, parsed by Prometheus' client library."""
    families = text_string_to_metric_families(ask(url + "/metrics")[1])
    return {one.name: one.value for family in families for one in family.samples if one.labels.keys() == {"command"}}


def slow_client(port: int) -> socket.socket:
    """Return a connection that has sent only a part of a request."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(b"GET /")
    return connection
