"""Ask a command's health by HTTP, at the address that its log says; or be slow to ask."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from pathlib import Path


def base(log: Path) -> str:
    """Return the address that a command says in its log, the newest."""
    return str(re.findall(r"health is on (http://[\d.]+:\d+)/metrics", log.read_text())[-1])


def ask(url: str) -> tuple[int, str]:
    """Return the status and the text of an address."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def internal_metrics(url: str) -> dict[str, float]:
    """Return the samples that have no more than the label `command`, by name, as a client of Prometheus reads them."""
    families = text_string_to_metric_families(ask(url + "/metrics")[1])
    return {one.name: one.value for family in families for one in family.samples if one.labels.keys() == {"command"}}


def slow_client(port: int, sent: bytes = b"GET /") -> socket.socket:
    """Return a connection that has sent this much of a request."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=30)
    connection.sendall(sent)
    return connection
