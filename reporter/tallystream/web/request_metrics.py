"""The metrics of HTTP requests, with a limited number of routes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.instrumentation.default import default_registry

if TYPE_CHECKING:
    from tallystream.metric_factory import MetricFactory
    from tallystream.metrics.timer import Timer

METHODS = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"})
OTHER = "other"
"""The tag `route` of requests of further routes or without a route, and the tag `method` of unknown methods."""

MAX_ROUTES = 200


class RequestMetrics:
    """The metrics of the requests of an application.

    - `http.server.requests`: a counter with the tags `route`, `method` and `status`, such as 2xx,
    - `http.server.duration`: a timer with the tags `route` and `method`,
    - `http.server.active`: an up-down counter of the requests that are being answered.

    Args:
        registry: the registry of the metrics, or a child of it; None: the default registry.
        max_routes: the number of routes with metrics of their own. All further ones are the route `other`.
    """

    def __init__(self, registry: MetricFactory | None = None, *, max_routes: int = MAX_ROUTES) -> None:
        self._registry = (registry or default_registry()).child("http.server")
        self._active = self._registry.updown("active")
        self._routes: set[str] = set()
        self._max_routes = max_routes
        self._seconds = self._registry.clock.monotonic

    def begin(self) -> float:
        """Begin a request, and return its time by the registry's monotonic clock."""
        self._active.inc()
        return self._seconds()

    def end(self, began: float, *, route: str | None, method: str, status: int) -> None:
        """End a request that began at `began`. A request without a response has the status 500."""
        self._active.dec()
        tags = {"route": self._bounded(route), "method": method if method in METHODS else OTHER}
        timer: Timer = self._registry.timer("duration", tags)
        timer.update(max(0.0, self._seconds() - began))
        self._registry.counter("requests", {**tags, "status": f"{status // 100}xx"}).inc()

    def _bounded(self, route: str | None) -> str:
        if not route or len(route) > 512 or "\0" in route:
            return OTHER
        if route not in self._routes:
            if len(self._routes) >= self._max_routes:
                return OTHER
            self._routes.add(route)
        return route
