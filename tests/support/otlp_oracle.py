"""What the sums of an OTLP topic must be, computed from its records without the aggregator's code."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections import Counter, defaultdict
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from support.kafka import read_topic
from support.otlp_application import PID

if TYPE_CHECKING:
    from tallystream_aggregator.sums import Sum

QUANTILES = {0.5: "p50", 0.75: "p75", 0.95: "p95", 0.98: "p98", 0.99: "p99", 0.999: "p999"}
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


def expected_sums(points: list[Point]) -> dict[tuple[str, str, Tags], dict[str, Any]]:
    """Return the fields that the sums must have, by type, name and tags, from the newest points."""
    sums: dict[tuple[str, str, Tags], Any] = defaultdict(Counter)
    for kind, _, _, name, tags, data in points:
        if kind == "counter":
            sums["counter", name, tags]["count"] += data.as_int
        elif kind == "updown":
            sums["updown", name, tags]["sum"] += data.as_int
        elif kind in {"histogram", "exponential_histogram"}:
            fields = sums["histogram", name, tags]
            fields["min"] = min(fields.get("min", math.inf), data.min)
            fields["max"] = max(fields.get("max", -math.inf), data.max)
            fields["count"] += data.count
            fields["sum"] += data.sum
        if kind == "histogram":
            bounds = list(data.explicit_bounds)
            digest = hashlib.sha256(struct.pack(f"<{len(bounds)}d", *bounds)).hexdigest()[:32]
            fields = sums["buckets", name, tuple(sorted((*tags, ("bounds", f"{len(bounds)}-{digest}"))))]
            counts = fields.get("counts", [0] * len(data.bucket_counts))
            fields["count"] += data.count
            fields |= {"bounds": bounds, "counts": list(map(add, counts, data.bucket_counts))}
    return dict(sums)


def assert_quantiles(row: Sum, points: list[Point]) -> None:
    """Check that each quantile of the sum is in the bucket that has it, of the buckets of all processes together."""
    scale = min(point.data.scale for point in points)
    buckets: Counter[int] = Counter()
    for point in points:
        assert not point.data.zero_count
        assert not any(point.data.negative.bucket_counts)
        for index, count in enumerate(point.data.positive.bucket_counts, point.data.positive.offset):
            buckets[index >> (point.data.scale - scale)] += count
    total = sum(buckets.values())
    base = 2.0 ** (2.0**-scale)
    for quantile, field in QUANTILES.items():
        value = getattr(row, field)
        below = sum(count for index, count in buckets.items() if base ** (index + 1) < value * (1 - 1e-9))
        up_to = sum(count for index, count in buckets.items() if base**index <= value * (1 + 1e-9))
        assert below <= math.ceil(quantile * total) <= up_to + 1, (field, value, below, up_to, total)


def exported(servers: str, topic: str) -> dict[str, set[int]]:
    """Return the IDs of the processes that have records in the topic, by instance."""
    found: dict[str, set[int]] = defaultdict(set)
    for point in read_points(servers, topic):
        if point.name == PID:
            found[point.instance].add(point.data.as_int)
    return found
