"""The metrics of HTTP requests, with a limited number of routes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from tallystream.errors import ConfigError
from tallystream.instrumentation.default import default_registry
from tallystream.log_throttle import RateLimitFilter
from tallystream.validation import check_tags

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream.metric_factory import MetricFactory
    from tallystream.metrics.timer import Timer

METHODS = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"})
OTHER = "other"
"""The tag `route` of requests of further routes or without a route, and the tag `method` of unknown methods."""

MAX_ROUTES = 200

_log = logging.getLogger("tallystream.web")
_log.addFilter(RateLimitFilter())


class RequestMetrics:
    """The metrics of the requests of an application.

    - `http.server.requests`: a counter with the tags `route`, `method` and `status`, such as 2xx,
    - `http.server.duration`: a timer with the tags `route` and `method`,
    - `http.server.active`: an up-down counter of the requests that are being answered.

    No error here reaches the application. The logger `tallystream.web` logs one of each kind a minute.

    Args:
        registry: the registry of the metrics, or a child of it; None: the default registry.
        max_routes: the number of routes with metrics of their own. All further ones are the route `other`.
        find: returns the route of a request. If it raises, the request is one of the route `other`.
    """

    def __init__(self, registry: MetricFactory | None, *, max_routes: int, find: Callable[[Any], str | None]) -> None:
        self._registry = (registry or default_registry()).child("http.server")
        self._active = self._registry.updown("active")
        self._routes: set[str] = set()
        self._max_routes, self._find = max_routes, find
        self._seconds = self._registry.clock.monotonic

    def begin(self) -> float:
        """Begin a request, and return its time by the registry's monotonic clock."""
        self._active.inc()
        return self._seconds()

    def route(self, request: Any) -> str:
        """Return the tag of the route of a request: the scope of ASGI, or the environment of WSGI."""
        try:
            route = self._find(request)
            return OTHER if route is None else self._bounded(route)
        except ConfigError as error:
            _log.warning("%s, so the request counts as `other`: %s", "a route can't be used", error)
        except Exception:  # noqa: BLE001 - the application has answered the request
            _log.exception("%s, so the request counts as `other`", "the function that returns the route failed")
        return OTHER

    def end(self, began: float, *, route: str, method: str, status: int | str) -> None:
        """End a request that began at `began`. A request without a response has the status 500."""
        self._active.dec()
        tags = {"route": route, "method": method if method in METHODS else OTHER}
        try:
            timer: Timer = self._registry.timer("duration", tags)
            timer.update(max(0.0, self._seconds() - began))
            self._registry.counter("requests", {**tags, "status": f"{int(status) // 100}xx"}).inc()
        except Exception:  # noqa: BLE001 - the application has answered the request
            _log.exception("%s", "a request can't be counted")

    def _bounded(self, route: str) -> str:
        if route not in self._routes:
            if not route or len(self._routes) >= self._max_routes:
                return OTHER
            check_tags("http.server.requests", {"route": route})
            self._routes.add(route)
        return route
