"""Decodes OTLP metrics as in docs/otlp.md. It shares no code with the table's reader of OTLP, only protobuf's."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import struct
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from tallystream.record import (
    Buckets,
    Counter,
    ExplicitBuckets,
    FloatCounter,
    Gauge,
    Histogram,
    Sketch,
    Snapshot,
    UpDown,
    bounds_tag,
)
from tallystream_aggregator.verify.decode import Read, RejectedError
from tallystream_aggregator.verify.lives import MAX_INT64, require_valid
from tallystream_aggregator.verify.sketches import MAX_BUCKETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

    from tallystream.record import Metric

DAY_MS = 86_400_000
NAMES = ("service.instance.id", "k8s.pod.uid", "k8s.pod.name", "container.id", "host.id", "host.name")

Group = tuple[str, int, bool]
"""(life, time of the points in ns, whether they are baselines)"""


def read(value: bytes) -> list[pb.ResourceMetrics]:
    """Return the resources of a record that have metrics.

    Raises:
        RejectedError: it is not OTLP.
    """
    data = pb.MetricsData()
    if value[:1] == b"{" and value.count(b"{") > 100 + len(value) // 8:
        raise RejectedError("too many objects for its size")
    try:
        if value[:1] == b"{":
            json_format.Parse(value, data, ignore_unknown_fields=True)
        else:
            data.ParseFromString(value)
    except (json_format.ParseError, DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RejectedError("not OTLP") from error
    if sum(1 + len(one.scope_metrics) for one in data.resource_metrics) > 100 + len(value) // 16:
        raise RejectedError("too many resources and scopes for its size")
    if not data.resource_metrics and value[:1] == b"{" and b"esource" not in value:
        raise RejectedError("no OTLP metrics")
    return [one for one in data.resource_metrics if any(scoped.metrics for scoped in one.scope_metrics)]


def snapshots(resource: pb.ResourceMetrics, append_ms: int, max_metrics: int) -> tuple[str, list[Read], list[str]]:
    """Return the instance of a resource, its snapshots, and the reasons of its refused points.

    Raises:
        RejectedError: the resource has no valid app or instance.
    """
    attributes = _texts(resource.resource.attributes)
    app = attributes.get("service.name") or "unknown_service"
    if attributes.get("service.namespace"):
        app = attributes["service.namespace"] + "/" + app
    instance = _instance(attributes)
    if len(app) > 512 or len(instance.encode()) > 1024 or "\0" in app + instance:
        raise RejectedError("no valid app or instance")
    groups: dict[Group, list[Metric]] = {}
    refused: list[str] = []
    for scoped in resource.scope_metrics:
        scope = scoped.scope
        named = [scope.name, scope.version, sorted(_texts(scope.attributes).items())]
        for metric in scoped.metrics:
            for found in _points(metric, json.dumps(named), append_ms):
                if isinstance(found, str):
                    refused.append(found)
                else:
                    groups.setdefault(found[0], []).extend(found[1])
    made = [
        Read(
            Snapshot(
                app=app,
                life=life,
                part=0,
                seq=ns,
                prev=ns // 10**6,
                ts=0,
                every_ms=60_000,
                final=False,
                complete=False,
                metrics=metrics[:max_metrics],
            ),
            [],
            len(metrics) > max_metrics,
            baseline and "telemetry.sdk.language" not in attributes,
        )
        for (life, ns, baseline), metrics in sorted(groups.items())
    ]
    return instance, made, refused


def instance_of(resource: pb.ResourceMetrics) -> str | None:
    """Return the instance of a resource, None if it has no valid one."""
    instance = _instance(_texts(resource.resource.attributes))
    return None if len(instance.encode()) > 1024 or "\0" in instance else instance


def _instance(attributes: dict[str, str]) -> str:
    name = next((name for name in NAMES if attributes.get(name)), "")
    instance = attributes[name] if name else "unknown"
    if name in ("", "host.id", "host.name") and attributes.get("process.pid"):
        return instance + ":" + attributes["process.pid"]
    return instance


def _points(metric: pb.Metric, scope: str, append_ms: int) -> Iterator[tuple[Group, list[Metric]] | str]:
    """Yield the metrics of each point, or why it is refused."""
    kind, name = metric.WhichOneof("data"), metric.name
    if kind is None or not 1 <= len(name) <= 512 or "\0" in name:
        yield "no data of a known kind, or no valid name"
        return
    data = getattr(metric, kind)
    if kind not in ("gauge", "summary") and data.aggregation_temporality != pb.AGGREGATION_TEMPORALITY_CUMULATIVE:
        yield "not cumulative"
        return
    falls = kind == "gauge" or (kind == "sum" and not data.is_monotonic)
    for point in data.data_points:
        if point.flags & 1:
            continue
        time_ns, start_ns = point.time_unix_nano, point.start_time_unix_nano
        if not 0 < time_ns <= MAX_INT64 or not (falls or 0 < start_ns <= MAX_INT64):
            yield "no time, or no start time"
        elif not -DAY_MS < time_ns // 10**6 - append_ms <= DAY_MS:
            yield "too late or too early"
        elif not falls and start_ns // 10**6 > append_ms + DAY_MS:
            yield "too early a start"
        else:
            try:
                found = _metrics(name, kind, point, falls=falls)
            except ValueError as error:
                yield str(error)
            else:
                yield (_life(0 if falls else start_ns, scope), time_ns, not falls and start_ns == time_ns), found


def _life(start_ns: int, scope: str) -> str:
    named = hashlib.blake2b(scope.encode(), digest_size=16).digest()
    digest = hashlib.blake2b(str(start_ns).encode() + b" " + named, digest_size=10).digest()
    number = (start_ns // 10**6 << 80) + int.from_bytes(digest)
    letters = ""
    for _ in range(26):
        number, digit = divmod(number, 32)
        letters = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"[digit] + letters
    return letters


def _metrics(name: str, kind: str, point: Any, *, falls: bool) -> list[Metric]:
    texts = _texts(point.attributes)
    if len(texts) > 32:
        raise RejectedError("too many attributes")
    if any(not 1 <= len(key) <= 128 or len(text) > 512 or "\0" in key + text for key, text in texts.items()):
        raise RejectedError("an attribute can't be a tag")
    if kind in ("sum", "gauge"):
        return [_single(name, texts, _value(point), "gauge" if kind == "gauge" else "updown" if falls else "counter")]
    values = Histogram(name=name, tags=texts, count=point.count)
    if values.count > MAX_INT64:
        raise RejectedError("the count leaves 64 bits")
    for field in ("sum",) if kind == "summary" else ("sum", "min", "max"):
        if kind == "summary" or point.HasField(field):
            setattr(values, field, _finite(getattr(point, field)))
    if kind == "exponential_histogram":
        values.sketch = _sketch(point)
    require_valid(values)
    metrics: list[Metric] = [values]
    if kind == "histogram" and point.bucket_counts:
        metrics += _buckets(name, texts, point)
    return metrics


def _single(name: str, texts: dict[str, str], value: float, kind: str) -> Metric:
    if kind != "counter":
        return (Gauge if kind == "gauge" else UpDown)(name=name, tags=texts, value=value)
    if value < 0:
        raise RejectedError("no count")
    if isinstance(value, float):
        return FloatCounter(name=name, tags=texts, sum=value)
    return Counter(name=name, tags=texts, count=value)


def _buckets(name: str, texts: dict[str, str], point: pb.HistogramDataPoint) -> list[Metric]:
    """Return the explicit buckets of a point, nothing for a single one."""
    counts, bounds = point.bucket_counts, point.explicit_bounds
    if len(texts) >= 32 or "bounds" in texts:
        raise RejectedError("no room for the tag of the bounds")
    packed = struct.pack(f"<{len(bounds)}d", *bounds)
    fields = {"bounds": packed, "counts": struct.pack(f"<{len(counts)}Q", *counts)}
    values = ExplicitBuckets(name=name, tags=texts | {"bounds": bounds_tag(packed)}, count=point.count, **fields)
    return [values] if bounds else []


def _sketch(point: pb.ExponentialHistogramDataPoint) -> Sketch:
    """Return the sketch of an exponential histogram, at a scale at which its buckets are few enough."""
    sides = [
        {at: number for at, number in enumerate(side.bucket_counts, side.offset) if number}
        for side in (point.positive, point.negative)
    ]
    if point.zero_count + sum(sum(side.values()) for side in sides) != point.count:
        raise RejectedError("the buckets have another number of values")
    scale, fine = min(point.scale, 20), max(point.scale - 20, 0)
    sides = [_shifted(side, fine) for side in sides]
    while any(max(side) - min(side) >= MAX_BUCKETS for side in sides if side):
        scale -= 1
        sides = [_shifted(side, 1) for side in sides]
    if scale < -10:
        raise RejectedError("the scale is too small")
    positive, negative = map(_runs, sides)
    return Sketch(scale=scale, zero_count=point.zero_count, positive=positive, negative=negative)


def _runs(side: dict[int, int]) -> tuple[Buckets, ...]:
    if not side:
        return ()
    counts = [side.get(at, 0) for at in range(min(side), max(side) + 1)]
    return (Buckets(offset=min(side), counts=struct.pack(f"<{len(counts)}Q", *counts), width=8),)


def _shifted(side: dict[int, int], bits: int) -> dict[int, int]:
    """Return the buckets at a scale that is lower by `bits`."""
    shifted: dict[int, int] = {}
    for index, number in side.items():
        shifted[index >> bits] = shifted.get(index >> bits, 0) + number
    return shifted


def _value(point: pb.NumberDataPoint) -> int | float:
    kind = point.WhichOneof("value")
    if kind is None:
        raise RejectedError("no value")
    return point.as_int if kind == "as_int" else _finite(point.as_double)


def _finite(number: float) -> float:
    if not math.isfinite(number):
        raise RejectedError("not finite")
    return number


def _texts(attributes: Iterable[KeyValue]) -> dict[str, str]:
    return {one.key: _text(one.value) for one in attributes}


def _text(value: AnyValue) -> str:
    content = _content(value)
    return content if isinstance(content, str) else json.dumps(content, separators=(",", ":"), sort_keys=True)


def _content(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case "array_value":
            return [_content(one) for one in value.array_value.values]
        case "kvlist_value":
            return {one.key: _content(one.value) for one in value.kvlist_value.values}
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "string_value" | "bool_value" | "int_value" | "double_value" as kind:
            return getattr(value, kind)
    return ""
