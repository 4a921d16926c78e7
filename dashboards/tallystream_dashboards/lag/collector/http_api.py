"""The collector's HTTP API: the lag as `/metrics` and `/v1/groups`, `/healthz`, `/readyz`, and further routes."""

from __future__ import annotations

import logging
import time
from contextlib import closing, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from tallystream.errors import ConfigError
from tallystream_aggregator.http_server import HttpServer, Response, health_response, json_response
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.stores import open_reader
from tallystream_dashboards.lag.exposition import exposition
from tallystream_dashboards.lag.reader import read_group, read_groups
from tallystream_dashboards.lag.storage import group_json
from tallystream_dashboards.query import QueryError, at_ms, parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tallystream_aggregator.sinks.base import PointReader
    from tallystream_dashboards.lag.collector.settings import CollectSettings
    from tallystream_dashboards.lag.collector.tracker import Round
    from tallystream_dashboards.lag.state import GroupState

log = logging.getLogger(__name__)

GROUPS = "/v1/groups"
MAX_WAIT_S = 30.0


class LagApi:
    """The answers to HTTP requests, from the newest round or the store. Thread-safe.

    `interval` is that of rounds, in seconds. `open_store` opens the store, which is read for moments of the past.
    `routes` are further paths, each with a function from the query string to the answer. `monotonic` and `clock`
    (epoch) return seconds.
    """

    def __init__(
        self,
        interval: float,
        open_store: Callable[[], PointReader],
        routes: Mapping[str, Callable[[str], Response]] = MappingProxyType({}),
        *,
        monotonic: Callable[[], float] = time.monotonic,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._max_wait_s = max(3 * interval, MAX_WAIT_S)
        self._open_store = open_store
        self._routes = routes
        self._monotonic = monotonic
        self._clock = clock
        self._newest: Round | None = None
        self._finished = monotonic()
        self._succeeded = False

    def publish(self, result: Round) -> None:
        """Set the newest round's results."""
        self._newest = result

    def finished(self, *, succeeded: bool) -> None:
        """Record that a round has ended, and whether it reached both the broker and the store."""
        self._finished, self._succeeded = self._monotonic(), succeeded

    def metrics(self) -> Response:
        """Return the lag in Prometheus' text format; 503 before the first round, or if the newest one is too old."""
        newest, problem = self._newest, self._outdated()
        if problem is not None or newest is None:
            return Response(503, "text/plain; charset=utf-8", f"{problem}\n")
        return exposition(newest.states, newest.bounds, newest.ts_ms, newest.records)

    def health(self) -> Response:
        """Return 503 if no round has ended for too long, else 200."""
        age_s = self._monotonic() - self._finished
        return health_response(None if age_s <= self._max_wait_s else f"the last round ended {age_s:.0f} s ago")

    def readiness(self) -> Response:
        """Return 200 if the last round reached both the broker and the store, else 503."""
        return health_response(
            None if self._succeeded else "the last round did not reach both the broker and the store"
        )

    def answer(self, path: str) -> Response:
        """Return the answer to a path below `/v1` with its query string. For an unknown path it lists all."""
        try:
            parts = urlsplit(path)
        except ValueError:
            return json_response(400, {"error": f"{path!r} is not a valid path"})
        route = self._routes.get(parts.path.rstrip("/"))
        if route is not None:
            return route(parts.query)
        if parts.path.rstrip("/") == GROUPS or parts.path.startswith(f"{GROUPS}/"):
            return self._groups(unquote(parts.path.removeprefix(GROUPS).strip("/")) or None, parts.query)
        routes = ", ".join([GROUPS, f"{GROUPS}/GROUP", *self._routes, "/metrics", "/healthz", "/readyz"])
        return json_response(404, {"error": f"there is no {parts.path}; there are {routes}"})

    def _groups(self, group: str | None, query: str) -> Response:
        try:
            past_ms = at_ms(parameters(query, ["at"]))
        except QueryError as error:
            return json_response(400, {"error": str(error)})
        if past_ms is not None:
            return self._past(group, past_ms)
        if self._newest is None:
            return json_response(503, {"error": self._outdated()})
        return _groups(group, self._newest.states, self._newest.ts_ms)

    def _past(self, group: str | None, past_ms: int) -> Response:
        try:
            with closing(self._open_store()) as reader:
                if group is None:
                    return _groups(None, read_groups(reader, at_ms=past_ms), past_ms)
                state = read_group(reader, group, at_ms=past_ms)
                return _groups(group, [] if state is None else [state], past_ms)
        except (SinkUnavailableError, ConfigError) as error:
            return json_response(503, {"error": str(error)})

    def _outdated(self) -> str | None:
        """Return why there are no current results; None if there are."""
        if self._newest is None:
            return "no round has finished yet"
        age_s = self._clock() - self._newest.ts_ms / 1000
        return None if age_s <= self._max_wait_s else f"the broker last answered {age_s:.0f} s ago"


@contextmanager
def serve(settings: CollectSettings, routes: Mapping[str, Callable[[str], Response]]) -> Iterator[LagApi]:
    """Serve the API with further `routes` while the block runs, if the settings have a port.

    Raises:
        ConfigError: the address can't be listened on.
    """
    api = LagApi(settings.interval, lambda: open_reader(settings.store), routes)
    if settings.http_port is None:
        yield api
        return
    paths = {"/metrics": api.metrics, "/healthz": api.health, "/readyz": api.readiness}
    server = HttpServer(paths, address=settings.http_address, port=settings.http_port, other=api.answer)
    log.info("lag is served at http://%s:%d%s and /metrics", server.address, server.port, GROUPS)
    try:
        yield api
    finally:
        server.close()


def _groups(group: str | None, states: Sequence[GroupState], ts_ms: int) -> Response:
    if group is None:
        return json_response(200, {"ts_ms": ts_ms, "groups": [group_json(state, partitions=False) for state in states]})
    state = next((state for state in states if state.group == group), None)
    if state is None:
        return json_response(404, {"error": f"there is no group {group!r}"})
    return json_response(200, {"ts_ms": ts_ms, **group_json(state, partitions=True)})
