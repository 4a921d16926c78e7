"""Requests to applications with the middleware, and the metrics of these requests."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from tallystream import MetricRegistry, record
from tallystream.testing import find

REQUESTS, DURATION, ACTIVE = "http.server.requests", "http.server.duration", "http.server.active"


def tags(route: str, method: str, status: str | None = None) -> dict[str, str]:
    """Return the tags of a metric."""
    return {"route": route, "method": method} | ({} if status is None else {"status": status})


def active(registry: MetricRegistry) -> float:
    """Return how many requests are being answered."""
    found = find(registry, ACTIVE)
    assert isinstance(found, record.UpDown)
    return found.value


def request(app: Any, path: str, method: str = "GET") -> tuple[int, bytes]:
    """Return the status and the body that an ASGI application answers. Its exceptions reach only the server."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()  # no application here reads a body, and no client disconnects
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": [], "root_path": ""}
    with suppress(RuntimeError):
        asyncio.run(app(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)
