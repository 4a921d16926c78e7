"""The points of one OTLP metric as metrics of the record contract: docs/otlp.md, "Points"."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from tallystream import record
from tallystream.metrics.sketch import MAX_BUCKETS, Buckets, require_valid
from tallystream.record import (
    BOUNDS,
    MAX_COUNT,
    MAX_NAME,
    MAX_SCALE,
    MIN_SCALE,
    Counter,
    ExplicitBuckets,
    FloatCounter,
    Gauge,
    Histogram,
    Metric,
    UpDown,
)
from tallystream_aggregator.otlp.identity import OtlpError, tags_of, texts_of

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue

NO_VALUE = pb.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
DELTA = (
    "delta temporality can't be summed exactly, as a point that arrives twice would count twice; set "
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=cumulative in the application"
)
NO_START = (
    "the point has no start time, so a restart could not be told from a duplicate; add the processor metric_start_time "
    "to the Collector"
)
INDEX_BITS = 32
"""The bits of a bucket's index. After so many halvings every bucket has the index 0 or -1, which further ones keep."""


class Read(NamedTuple):
    """A point as metrics. Those of a histogram with explicit buckets are followed by these. Times are epoch ns.

    `start_ns` is 0 for values that replace each other whatever process they are from: gauges and other sums.
    """

    start_ns: int
    time_ns: int
    metrics: list[Metric]


class RejectedPoint(NamedTuple):
    """A point that can't be taken, or all points of a metric. Its tags are read only if a dead letter has them."""

    reason: str
    name: str
    attributes: Iterable[KeyValue] = ()

    @property
    def tags(self) -> dict[str, str]:
        """All attributes of the point, as text."""
        return texts_of(self.attributes)


def read_metric(metric: pb.Metric) -> Iterator[Read | RejectedPoint]:
    """Yield each point of a metric that has a value."""
    kind = metric.WhichOneof("data")
    reader = _READERS.get(kind or "")
    if reader is None:
        yield RejectedPoint("the metric has no data of a known type", metric.name)
        return
    data = getattr(metric, kind or "")
    read, lasting = reader(data)
    if not 1 <= len(metric.name) <= MAX_NAME or "\0" in metric.name:
        yield RejectedPoint(f"the name can't be used: 1 to {MAX_NAME} characters, without NUL", metric.name)
    elif kind in _TEMPORAL and data.aggregation_temporality != pb.AGGREGATION_TEMPORALITY_CUMULATIVE:
        delta = data.aggregation_temporality == pb.AGGREGATION_TEMPORALITY_DELTA
        yield RejectedPoint(DELTA if delta else "the temporality is unknown; it must be cumulative", metric.name)
    else:
        for point in data.data_points:
            if not point.flags & NO_VALUE:
                yield _point(metric.name, point, read, lasting=lasting)


def _point(
    name: str, point: Any, read: Callable[[str, dict[str, str], Any], list[Metric]], *, lasting: bool
) -> Read | RejectedPoint:
    time_ns, start_ns = point.time_unix_nano, point.start_time_unix_nano if lasting else 0
    if not 0 < time_ns <= MAX_COUNT:  # without an exception, as a record may have many points of two bytes
        return RejectedPoint("the point has no time", name, point.attributes)
    if lasting and not 0 < start_ns <= MAX_COUNT:
        return RejectedPoint(NO_START, name, point.attributes)
    try:
        metrics = read(name, tags_of(point.attributes), point)
    except ValueError as error:  # the buckets of a sketch raise it, too
        return RejectedPoint(str(error), name, point.attributes)
    return Read(start_ns, time_ns, metrics)


def _counter(name: str, tags: dict[str, str], point: pb.NumberDataPoint) -> list[Metric]:
    value = _number(point)
    if value < 0:
        raise OtlpError(f"a monotonic sum has the value {value}, and it is never below 0")
    if isinstance(value, float):
        return [FloatCounter(name=name, tags=tags, sum=value)]
    return [Counter(name=name, tags=tags, count=value)]


def _updown(name: str, tags: dict[str, str], point: pb.NumberDataPoint) -> list[Metric]:
    return [UpDown(name=name, tags=tags, value=_number(point))]


def _gauge(name: str, tags: dict[str, str], point: pb.NumberDataPoint) -> list[Metric]:
    return [Gauge(name=name, tags=tags, value=_number(point))]


def _number(point: pb.NumberDataPoint) -> int | float:
    kind = point.WhichOneof("value")
    if kind is None:
        raise OtlpError("the point has no value")
    return point.as_int if kind == "as_int" else _finite("the value", point.as_double)


def _finite(what: str, value: float) -> float:
    if not math.isfinite(value):
        raise OtlpError(f"{what} is {value}, which can't be summed")
    return value


def _explicit(name: str, tags: dict[str, str], point: pb.HistogramDataPoint) -> list[Metric]:
    metrics: list[Metric] = [_distribution(name, tags, point)]
    bounds, counts = point.explicit_bounds, point.bucket_counts
    if not counts:
        return metrics
    if len(tags) >= record.MAX_TAGS or BOUNDS in tags:
        raise OtlpError(f"the attributes leave no room for the tag {BOUNDS} of the buckets")
    packed = struct.pack(f"<{len(bounds)}d", *bounds)
    buckets = ExplicitBuckets(
        name=name,
        tags={**tags, BOUNDS: record.bounds_tag(packed)},
        count=point.count,
        bounds=packed,
        counts=struct.pack(f"<{len(counts)}Q", *counts),
    )
    return [*metrics, buckets] if packed else metrics  # without bounds, the only bucket has the count


def _exponential(name: str, tags: dict[str, str], point: pb.ExponentialHistogramDataPoint) -> list[Metric]:
    metric = _distribution(name, tags, point)
    sides, values = dict[str, Buckets](), point.zero_count
    for sign, given in (("positive", point.positive), ("negative", point.negative)):
        if counts := given.bucket_counts:
            side = sides[sign] = Buckets(given.offset, counts)
            values += sum(side.counts)
            side.trim()
    if values != metric.count:
        raise OtlpError(f"the buckets have {values} values and the count is {metric.count}")
    scale, finer = min(point.scale, MAX_SCALE), min(max(point.scale - MAX_SCALE, 0), INDEX_BITS)
    while finer or any(len(side.counts) > MAX_BUCKETS for side in sides.values()):
        for side in sides.values():
            if side.counts:
                side.offset, side.counts = side.halved(finer or 1)
        scale, finer = (scale, 0) if finer else (scale - 1, 0)
    if scale < MIN_SCALE:
        raise OtlpError(f"the scale is {point.scale}, at least {MIN_SCALE} is taken")
    encoded = {sign: side.encode() for sign, side in sides.items()}
    metric.sketch = record.Sketch(scale=scale, zero_count=point.zero_count, **encoded)
    require_valid(metric.sketch)
    return [metric]


def _distribution(name: str, tags: dict[str, str], point: Any) -> Histogram:
    low, high = (_finite(field, getattr(point, field)) if point.HasField(field) else None for field in ("min", "max"))
    total = _finite("the sum", point.sum) if point.HasField("sum") else None
    return Histogram(name=name, tags=tags, count=_count(point), sum=total, min=low, max=high)


def _summary(name: str, tags: dict[str, str], point: pb.SummaryDataPoint) -> list[Metric]:
    return [Histogram(name=name, tags=tags, count=_count(point), sum=_finite("the sum", point.sum))]


def _count(point: Any) -> int:
    count: int = point.count
    if count > MAX_COUNT:
        raise OtlpError(f"the count is {count}, {MAX_COUNT} at most is taken")
    return count


_Reader = tuple[Callable[[str, dict[str, str], Any], list[Metric]], bool]
_READERS: dict[str, Callable[[Any], _Reader]] = {
    "sum": lambda data: (_counter, True) if data.is_monotonic else (_updown, False),
    "gauge": lambda _: (_gauge, False),
    "histogram": lambda _: (_explicit, True),
    "exponential_histogram": lambda _: (_exponential, True),
    "summary": lambda _: (_summary, True),
}
_TEMPORAL = {"sum", "histogram", "exponential_histogram"}
