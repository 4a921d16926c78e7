"""Turns points into the request of OTLP. docs/stores.md shows which metric each value becomes.

Source: "Metrics Data Model" and "OTLP Specification" (opentelemetry.io/docs/specs), opentelemetry-proto 1.10.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    ExponentialHistogramDataPoint,
    Metric,
    ScopeMetrics,
    SummaryDataPoint,
)

from tallystream import record
from tallystream.decoding import json_decoder
from tallystream.metric_types import QUANTILES
from tallystream.metrics.sketch import Sketch
from tallystream.validation import free
from tallystream_aggregator.sinks.base import INSTANCE_PREFIX, Point, filled, numbers, unstorable

if TYPE_CHECKING:
    from collections.abc import Iterable

START_NS = 1
"""The start of every cumulative stream: the first nanosecond of 1970, because 0 means an unknown start.

A sum counts everything since its table began, and it was 0 at any time before that. So every earlier time is a true
start, and the earliest one is the same for all sums, after any restart, and for every writer. A start that moves would
mean that the sum was reset.
"""
SCOPE = "tallystream"
"""The name of the instrumentation scope. It has no version, because an upgrade would start new streams."""

FIELD = "field"
"""The attribute of a gauge NAME.FIELD. It distinguishes the field `max` of `x` from a metric named `x.max`."""
_OWN = frozenset({FIELD, "job", "quantile"})
"""Attributes that are reserved. Receivers that store Prometheus' series make the last two themselves."""

_SUMS = {"counter": "count", "float_counter": "sum", "meter": "count", "position": "position", "updown": "sum"}
"""The types whose sum is a Sum, with its field. All but an updown are monotonic."""
_UNITS = {"histogram": "", "timer": "s"}
"""The types whose sum is a Summary, a Histogram or an ExponentialHistogram, with its unit."""
_QUANTILES = {"min": 0.0, **QUANTILES, "max": 1.0}
"""The quantiles of a Summary, ascending. By definition 0 is the minimum and 1 is the maximum."""
_decode = json_decoder(record.Sketch)
_NS_PER_MS = 1_000_000
_END_MS = 2**64 // _NS_PER_MS
"""The end of OTLP's time: nanoseconds have 64 bits."""


def unfit(point: Point) -> object:
    """Return the reason why no receiver can take a point, None if it can."""
    if bad := unstorable(point):
        return bad
    if not 0 < point.ts_ms < _END_MS:
        return f"the time {point.ts_ms}"
    fields = numbers(point)
    if not fields:
        return "it has no number"
    if _type(point) in _UNITS and fields.get("count", 0) < 0:
        return f"the count {fields['count']}"
    return None


def encode(points: Iterable[Point], *, buckets: bool = False) -> bytes:
    """Return the request for points that are fit, in their order within each stream.

    With `buckets`, a distribution with a sketch is an ExponentialHistogram. Otherwise it is a Summary, or a Histogram
    with one bucket if its sum can't be given: a Summary always has a sum.
    """
    builder = _Builder(buckets=buckets)
    for point in points:
        builder.add(point)
    return builder.request.SerializeToString()


class _Builder:
    """Collects data points under their resource (the app) and their metric."""

    def __init__(self, *, buckets: bool) -> None:
        self._buckets = buckets
        self.request = ExportMetricsServiceRequest()
        self._scopes: dict[str | None, ScopeMetrics] = {}
        self._metrics: dict[tuple[str | None, str, str, bool], Metric] = {}

    def add(self, point: Point) -> None:
        """Add the data point of the sum, and that of a gauge for each other field."""
        app = point.tags.get("app")
        type_, fields = _type(point), numbers(point)
        # Receivers that store Prometheus' series add `_bucket` themselves.
        name = filled(point.measurement.removesuffix(".bucket") if type_ == "buckets" else point.measurement)
        attributes = [_attribute(free(key, _OWN), value) for key, value in point.tags.items() if key != "app"]
        common = {"attributes": attributes, "time_unix_nano": point.ts_ms * _NS_PER_MS}
        cumulative = {**common, "start_time_unix_nano": START_NS}
        if type_ in _SUMS and _SUMS[type_] in fields:
            sum_ = self._metric(app, name, "sum", monotonic=type_ != "updown").sum
            sum_.data_points.add(**cumulative, **_value(fields.pop(_SUMS[type_])))
        elif type_ in _UNITS and "count" in fields:
            kind, made = _distribution(fields, _sketch(point) if self._buckets else None)
            getattr(self._metric(app, name, kind, unit=_UNITS[type_]), kind).data_points.add(**cumulative, **made)
        elif type_ == "buckets" and "count" in fields:
            data = self._metric(app, name, "histogram").histogram
            data.data_points.add(**cumulative, **_explicit_buckets(fields))
        elif type_ == "gauge" and "sum" in fields:
            self._metric(app, name, "gauge").gauge.data_points.add(**common, **_value(fields.pop("sum")))
        for field, value in fields.items():
            made = common | {"attributes": [*attributes, _attribute(FIELD, field)]} | _value(value)
            self._metric(app, f"{name}.{field}", "gauge").gauge.data_points.add(**made)

    def _metric(self, app: str | None, name: str, kind: str, *, unit: str = "", monotonic: bool = False) -> Metric:
        """Return the metric with this identity, a new one at first."""
        found = self._metrics.get((app, name, kind + unit, monotonic))
        if found is None:
            found = self._scope(app).metrics.add(name=name, unit=unit)
            if kind == "sum":
                found.sum.is_monotonic = monotonic
            if kind in ("sum", "histogram", "exponential_histogram"):
                getattr(found, kind).aggregation_temporality = AGGREGATION_TEMPORALITY_CUMULATIVE
            self._metrics[app, name, kind + unit, monotonic] = found
        return found

    def _scope(self, app: str | None) -> ScopeMetrics:
        found = self._scopes.get(app)
        if found is None:
            resource = self.request.resource_metrics.add()
            if app is not None:
                resource.resource.attributes.append(_attribute("service.name", app))
            found = resource.scope_metrics.add()
            found.scope.name = SCOPE
            self._scopes[app] = found
        return found


def _value(value: float) -> dict[str, Any]:
    return {"as_int": value} if isinstance(value, int) else {"as_double": value}


def _distribution(fields: dict[str, float], sketch: Sketch | None) -> tuple[str, dict[str, Any]]:
    """Return the kind of a distribution's data point and its values, which are removed from `fields`."""
    made: dict[str, Any] = {"count": int(fields.pop("count"))}
    if min(fields.get("min", 0.0), fields.get("sum", -1.0)) >= 0:  # OTLP has no sum that negative values lower
        made["sum"] = fields.pop("sum")
        if sketch is None:
            return "summary", made | _quantiles(fields)
    made |= {field: fields.pop(field) for field in ("min", "max") if field in fields}
    if sketch is None:
        return "histogram", made | {"bucket_counts": [made["count"]]}
    return "exponential_histogram", made | _buckets(sketch)


def _explicit_buckets(fields: dict[str, float]) -> dict[str, Any]:
    """Remove and return the values of explicit buckets. The name of each of their fields is a bound, and rises."""
    bounds = [name for name in fields if name.lstrip("-")[:1].isdigit()]
    up_to = [0, *(int(fields.pop(name)) for name in (*bounds, "count"))]
    counts = [high - low for low, high in pairwise(up_to)]
    return {"count": up_to[-1], "explicit_bounds": map(float, bounds), "bucket_counts": counts}


def _quantiles(fields: dict[str, float]) -> dict[str, Any]:
    """Remove and return the quantiles that a Summary can hold: those that are not negative."""
    held = {field: quantile for field, quantile in _QUANTILES.items() if fields.get(field, -1.0) >= 0}
    return {
        "quantile_values": [
            SummaryDataPoint.ValueAtQuantile(quantile=quantile, value=fields.pop(field))
            for field, quantile in held.items()
        ]
    }


def _sketch(point: Point) -> Sketch | None:
    """Return the sketch of a point, None if it can't be read or does not have the values that the point counts."""
    try:
        sketch = Sketch.decode(_decode(point.sketch))
        return sketch if sketch.count == point.fields["count"] else None
    except (msgspec.DecodeError, ValueError):
        return None


def _buckets(sketch: Sketch) -> dict[str, Any]:
    positive, negative = (
        ExponentialHistogramDataPoint.Buckets(offset=buckets.offset, bucket_counts=buckets.counts)
        for buckets in (sketch.positive, sketch.negative)
    )
    return {
        "scale": sketch.scale,
        "zero_count": sketch.zeros,
        "positive": positive,
        "negative": negative,
    }


def _type(point: Point) -> str:
    """Return the type of a sum; empty for other points, also those of single instances, whose counts restart."""
    return "" if point.measurement.startswith(INSTANCE_PREFIX) else point.tags.get("metric_type", "")


def _attribute(key: str, value: str) -> KeyValue:
    return KeyValue(key=filled(key), value=AnyValue(string_value=value))
