"""The collector's HTTP API: the lag as `/metrics`, `/healthz`, `/readyz`, and the routes of the store."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tallystream_aggregator.http_server import HttpServer, Response, health_response, json_response
from tallystream_dashboards.lag.exposition import exposition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tallystream_dashboards.lag.collector.settings import CollectSettings
    from tallystream_dashboards.lag.collector.tracker import Round

log = logging.getLogger(__name__)

MAX_WAIT_S = 30.0


class LagApi:
    """The answers to HTTP requests, from the newest round and by the `routes`. Thread-safe.

    `interval` is that of rounds, in seconds. `routes` are paths, each with a function from the query string to the
    answer. `monotonic` and `clock` (epoch) return seconds.
    """

    def __init__(
        self,
        interval: float,
        routes: Mapping[str, Callable[[str], Response]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._max_wait_s = max(3 * interval, MAX_WAIT_S)
        self._routes = routes
        self._monotonic = monotonic
        self._clock = clock
        self._newest: Round | None = None
        self._continued = monotonic()
        self._succeeded = False

    def publish(self, result: Round) -> None:
        """Set the newest round's results."""
        self._newest = result
        self.continues()

    def continues(self) -> None:
        """Record that a round continues: the broker has answered a request."""
        self._continued = self._monotonic()

    def finished(self, *, succeeded: bool) -> None:
        """Record that a round has ended, and whether it reached both the broker and the store."""
        self._succeeded = succeeded
        self.continues()

    def metrics(self) -> Response:
        """Return the lag in Prometheus' text format; 503 before the first round, or if the newest one is too old."""
        newest = self._newest
        if newest is None:
            return Response(503, "text/plain; charset=utf-8", "no round has finished yet\n")
        age_s = self._clock() - newest.ts_ms / 1000
        if age_s > self._max_wait_s + newest.took_s:
            return Response(503, "text/plain; charset=utf-8", f"the broker last answered {age_s:.0f} s ago\n")
        return exposition(newest.states, newest.bounds, newest.ts_ms, newest.records)

    def health(self) -> Response:
        """Return 503 if for too long no round has ended or continued, else 200."""
        age_s = self._monotonic() - self._continued
        return health_response(None if age_s <= self._max_wait_s else f"no round has continued for {age_s:.0f} s")

    def readiness(self) -> Response:
        """Return 200 if the last round reached both the broker and the store, else 503."""
        return health_response(
            None if self._succeeded else "the last round did not reach both the broker and the store"
        )

    def answer(self, path: str) -> Response:
        """Return the answer of a route to a path with its query string. For an unknown path it lists all."""
        try:
            parts = urlsplit(path)
        except ValueError:
            return json_response(400, {"error": f"{path!r} is not a valid path"})
        route = self._routes.get(parts.path.rstrip("/"))
        if route is not None:
            return route(parts.query)
        routes = ", ".join([*self._routes, "/metrics", "/healthz", "/readyz"])
        return json_response(404, {"error": f"there is no {parts.path}; there are {routes}"})


@contextmanager
def serve(settings: CollectSettings, routes: Mapping[str, Callable[[str], Response]]) -> Iterator[LagApi]:
    """Serve the API with further `routes` while the block runs, if the settings have a port.

    Raises:
        ConfigError: the address can't be listened on.
    """
    api = LagApi(settings.interval, routes)
    if settings.http_port is None:
        yield api
        return
    paths = {"/metrics": api.metrics, "/healthz": api.health, "/readyz": api.readiness}
    server = HttpServer(
        paths,
        address=settings.http_address,
        port=settings.http_port,
        other=api.answer,
        option=settings.port_option,
    )
    log.info("lag is served at %s/metrics and /v1/groups", server.url)
    try:
        yield api
    finally:
        server.close()
