"""The sink of Prometheus: serves the newest sums at `/metrics`."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING

from prometheus_client import Metric

from tallystream.metric_types import TYPES
from tallystream_aggregator.http_server import HttpServer, Response, metrics_response
from tallystream_aggregator.instances import INSTANCES
from tallystream_aggregator.sinks.base import Refused, numbers, sift, unstorable
from tallystream_aggregator.sinks.prometheus import names

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tallystream_aggregator.sinks.base import Point

log = logging.getLogger(__name__)

MAX_EXPANSION, VALUE_BYTES = 16, 16
"""How many times the size of a point its samples may have; what a value takes. Explicit buckets may have 4,096."""

MAX_AGE_S = 30.0
"""The longest time since the points were known to be the newest for which they are shown, in seconds."""

Key = tuple[str, tuple[tuple[str, str], ...]]


class PrometheusSink:
    """Serves the newest point of every sum on `address`:`port`; a port of 0 takes a free one.

    Level: latest only. Delivery: points are in memory only, so to a new sink the writer writes the newest point of
    every sum, and then calls `caught_up`. `/metrics` answers 503 before that, and from `MAX_AGE_S` after the last
    call. A scrape has all of a write or nothing. A later point of a sum replaces the earlier one with all its fields,
    whatever their times are: the table's clock may stand still or go back.

    Only sums can be shown: a point with an unknown `metric_type`, or with a text, is refused.
    """

    def __init__(self, address: str, port: int) -> None:
        self._address, self._wanted_port = address, port
        self._server: HttpServer | None = None
        self._points: dict[Key, Point] = {}
        self._newest_s: float | None = None
        self._lock = Lock()

    @property
    def port(self) -> int | None:
        """The port on which the server listens, None before `setup` and after `close`."""
        return None if self._server is None else self._server.port

    def setup(self) -> None:
        """Start the server. It is safe to call this again.

        Raises:
            ConfigError: the server can't listen on the address.
        """
        if self._server is None:
            paths = {"/metrics": self.metrics}
            self._server = HttpServer(paths, address=self._address, port=self._wanted_port, option="--store")
            log.info("sums are served at %s/metrics", self._server.url)

    def write(self, points: Sequence[Point]) -> list[Refused]:
        """Keep the points in memory. Return those that are no sums."""
        good, bad = sift("Prometheus", points, _unfit)
        with self._lock:
            for point in good:  # without the sketches, which are large
                self._points[point.measurement, tuple(sorted(point.tags.items()))] = replace(point, sketch=b"")
        return bad

    def caught_up(self, at_s: float) -> None:
        """Note that all points that there were at a time, of `time.monotonic`, are written."""
        self._newest_s = at_s

    def stale_reason(self) -> str | None:
        """Return why the points are not shown, None if they are."""
        if self._newest_s is None:
            return "the newest sums are not known yet"
        age_s = time.monotonic() - self._newest_s
        return f"the newest sums were last known {age_s:.0f} s ago" if age_s > MAX_AGE_S else None

    def clear(self) -> None:
        """Forget all points, and answer 503 until the writer has caught up."""
        with self._lock:
            self._points.clear()
            self._newest_s = None

    def close(self) -> None:
        """Stop the server. It is safe to call this again."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def metrics(self) -> Response:
        """Return all sums in the text format, or 503 with the reason while they are not shown."""
        with self._lock:
            if (reason := self.stale_reason()) is not None:
                return Response(503, "text/plain; charset=utf-8", f"{reason}\n")
            return metrics_response(families(self._points.values()))


def families(points: Collection[Point]) -> list[Metric]:
    """Return all sums as families of Prometheus, sorted by name. They are valid for any names of metrics.

    A family that metrics of several kinds share is untyped.
    """
    found = {names.SUMS: Metric(names.SUMS, names.OWN_FAMILIES[names.SUMS], "gauge")}
    found[names.SUMS].add_sample(names.SUMS, {}, len(points))
    for point in points:
        name, type_, labels = point.measurement, point.tags["metric_type"], names.labels(point.measurement, point.tags)
        places = [(names.place(name, type_, field), value) for field, value in numbers(point).items()]
        for place, value in (*places, (names.Place(names.SUM_TIME, "gauge"), point.ts_ms / 1000)):
            family = found.get(place.family)
            if family is None:
                help_ = names.OWN_FAMILIES.get(place.family, f"{name}, over all instances of each app.")
                family = found[place.family] = Metric(place.family, help_, place.kind)
            elif family.type != place.kind:
                family.type = "unknown"
            family.add_sample(place.family, labels | dict(place.labels) if place.labels else labels, value)
    for family in found.values():
        if family.type == "counter":
            family.name = family.name.removesuffix("_total")  # prometheus_client adds it again
    return [family for _, family in sorted(found.items())]


def _unfit(point: Point) -> object:
    """Return the reason why a point can't be shown, None if it can."""
    if point.tags.get("metric_type", "") not in {*TYPES, INSTANCES}:
        return "it is not a sum"
    fields, labels = len(point.fields), sum(len(key) + len(value) for key, value in point.tags.items())
    if fields * labels > MAX_EXPANSION * (labels + VALUE_BYTES * fields):
        return f"each of its {fields} samples would repeat {labels} characters of labels"
    text = [value for value in point.fields.values() if isinstance(value, str)]
    return text or unstorable(point)
