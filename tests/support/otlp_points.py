"""The data points of an OTLP topic, decoded without the aggregator's code."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any, NamedTuple

from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from support.kafka import read_topic
from support.otlp_application import PID

Tags = tuple[tuple[str, str], ...]
Series = tuple[str, Tags]


class Point(NamedTuple):
    """A data point of an OTLP topic, and where it comes from."""

    kind: str
    instance: str
    scope: str
    name: str
    tags: Tags
    data: Any

    @property
    def series(self) -> Series:
        """The name and the attributes."""
        return self.name, self.tags


def read_points(servers: str, topic: str) -> list[Point]:
    """Return every data point of the topic: decoded by this code, without the aggregator's."""
    points = []
    for record in read_topic(servers, topic):
        for resource in pb.MetricsData.FromString(record.value or b"").resource_metrics:
            instance = dict(_tags(resource.resource.attributes)).get("service.instance.id", "")
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    kind: str = metric.WhichOneof("data") or ""
                    data = getattr(metric, kind)
                    if kind == "sum":
                        kind = "counter" if data.is_monotonic else "updown"
                    if kind not in {"gauge", "summary"}:
                        assert data.aggregation_temporality == pb.AGGREGATION_TEMPORALITY_CUMULATIVE
                    name = scope.scope.name + "\0" + scope.scope.version
                    points += [
                        Point(kind, instance, name, metric.name, _tags(one.attributes), one) for one in data.data_points
                    ]
    return points


def _tags(attributes: Any) -> Tags:
    values = ((one.key, getattr(one.value, one.value.WhichOneof("value"))) for one in attributes)
    return tuple(sorted((key, value if isinstance(value, str) else json.dumps(value)) for key, value in values))


def newest(points: list[Point]) -> list[Point]:
    """Return the point with the latest time of each stream: of an instance, a scope, a series and a start time.

    An up-down counter has no start time here: the newest process replaces the earlier ones.
    """
    streams: dict[Any, Point] = {}
    for point in points:
        start_ns = 0 if point.kind in {"updown", "gauge"} else point.data.start_time_unix_nano
        stream = (point.kind, point.instance, point.scope, point.series, start_ns)
        if stream not in streams or streams[stream].data.time_unix_nano < point.data.time_unix_nano:
            streams[stream] = point
    return list(streams.values())


def exported(servers: str, topic: str) -> dict[str, set[int]]:
    """Return the IDs of the processes that have records in the topic, by instance."""
    found: dict[str, set[int]] = defaultdict(set)
    for point in read_points(servers, topic):
        if point.name == PID:
            found[point.instance].add(point.data.as_int)
    return found
