"""Decodes OTLP metrics as in docs/otlp.md, by way of plain dicts: it shares no code with the table's reader of OTLP."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

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
    from collections.abc import Iterator

    from tallystream.record import Metric

DAY_MS = 86_400_000
CUMULATIVE = "AGGREGATION_TEMPORALITY_CUMULATIVE"
NAMES = ("service.instance.id", "k8s.pod.uid", "k8s.pod.name", "container.id", "host.id", "host.name")

Group = tuple[str, int, bool]
"""(life, time of the points in ns, whether they are baselines)"""


def read(value: bytes) -> list[dict[str, Any]]:
    """Return the resources of a record that have metrics.

    Raises:
        RejectedError: it is not OTLP.
    """
    data = MetricsData()
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
    resources: list[dict[str, Any]] = json_format.MessageToDict(data).get("resourceMetrics", [])
    if not resources and value[:1] == b"{" and b"esource" not in value:
        raise RejectedError("no OTLP metrics")
    return [one for one in resources if any(scoped.get("metrics") for scoped in one.get("scopeMetrics", []))]


def snapshots(
    resource: dict[str, Any], append_ms: int, max_metrics: int
) -> tuple[str, list[Read], list[RejectedError]]:
    """Return the instance of a resource, its snapshots, and the reasons of its refused points.

    Raises:
        RejectedError: the resource has no valid app or instance.
    """
    attributes = _texts(resource.get("resource", {}))
    app = attributes.get("service.name") or "unknown_service"
    if attributes.get("service.namespace"):
        app = attributes["service.namespace"] + "/" + app
    instance = _instance(attributes)
    if len(app) > 512 or len(instance.encode()) > 1024 or "\0" in app + instance:
        raise RejectedError("no valid app or instance")
    groups: dict[Group, list[Metric]] = {}
    refused: list[RejectedError] = []
    for scoped in resource.get("scopeMetrics", []):
        scope = scoped.get("scope", {})
        named = [scope.get("name", ""), scope.get("version", ""), sorted(_texts(scope).items())]
        for metric in scoped.get("metrics", []):
            for at, found in _points(metric, json.dumps(named), append_ms):
                if isinstance(found, RejectedError):
                    refused.append(found)
                else:
                    groups.setdefault(at, []).extend(found)
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


def instance_of(resource: dict[str, Any]) -> str | None:
    """Return the instance of a resource, None if it has no valid one."""
    instance = _instance(_texts(resource.get("resource", {})))
    return None if len(instance.encode()) > 1024 or "\0" in instance else instance


def _instance(attributes: dict[str, str]) -> str:
    name = next((name for name in NAMES if attributes.get(name)), "")
    instance = attributes[name] if name else "unknown"
    if name in ("", "host.id", "host.name") and attributes.get("process.pid"):
        return instance + ":" + attributes["process.pid"]
    return instance


def _points(metric: dict[str, Any], scope: str, append_ms: int) -> Iterator[tuple[Group, list[Metric] | RejectedError]]:
    nowhere = ("", 0, False)
    kind = next((k for k in ("sum", "gauge", "histogram", "exponentialHistogram", "summary") if k in metric), None)
    name = metric.get("name", "")
    if kind is None or not 1 <= len(name) <= 512 or "\0" in name:
        yield nowhere, RejectedError("no data of a known kind, or no valid name")
        return
    data = metric[kind]
    if kind not in ("gauge", "summary") and data.get("aggregationTemporality") != CUMULATIVE:
        yield nowhere, RejectedError("not cumulative")
        return
    falls = kind == "gauge" or (kind == "sum" and not data.get("isMonotonic"))
    for point in data.get("dataPoints", []):
        if int(point.get("flags", 0)) & 1:
            continue
        time_ns, start_ns = int(point.get("timeUnixNano", 0)), int(point.get("startTimeUnixNano", 0))
        try:
            if not 0 < time_ns <= MAX_INT64 or not (falls or 0 < start_ns <= MAX_INT64):
                raise RejectedError("no time, or no start time")  # noqa: TRY301
            found = _metrics(name, kind, point, falls=falls)
            if time_ns // 10**6 > append_ms + DAY_MS:
                raise RejectedError("too early")  # noqa: TRY301
        except RejectedError as error:
            yield nowhere, error
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


def _metrics(name: str, kind: str, point: dict[str, Any], *, falls: bool) -> list[Metric]:
    texts = _texts(point)
    if len(texts) > 32:
        raise RejectedError("too many attributes")
    if any(not 1 <= len(key) <= 128 or len(text) > 512 or "\0" in key + text for key, text in texts.items()):
        raise RejectedError("an attribute can't be a tag")
    if kind in ("sum", "gauge"):
        return [_single(name, texts, _value(point), "gauge" if kind == "gauge" else "updown" if falls else "counter")]
    count = int(point.get("count", 0))
    values = Histogram(name=name, tags=texts, count=count, sum=0.0 if kind == "summary" else None)
    if values.count > MAX_INT64:
        raise RejectedError("the count leaves 64 bits")
    for field in ("sum",) if kind == "summary" else ("sum", "min", "max"):
        if field in point:
            setattr(values, field, _float(point[field]))
    if kind == "exponentialHistogram":
        values.sketch = _sketch(point, values.count)
    try:
        require_valid(values)
    except ValueError as error:
        raise RejectedError(str(error)) from error
    metrics: list[Metric] = [values]
    if kind == "histogram" and point.get("bucketCounts"):
        metrics += _buckets(name, texts, point, values.count)
    return metrics


def _single(name: str, texts: dict[str, str], value: float, kind: str) -> Metric:
    if kind != "counter":
        return (Gauge if kind == "gauge" else UpDown)(name=name, tags=texts, value=value)
    if value < 0:
        raise RejectedError("no count")
    if isinstance(value, float):
        return FloatCounter(name=name, tags=texts, sum=value)
    return Counter(name=name, tags=texts, count=value)


def _buckets(name: str, texts: dict[str, str], point: dict[str, Any], count: int) -> list[Metric]:
    """Return the explicit buckets of a point, nothing for a single one."""
    counts = [int(one) for one in point["bucketCounts"]]
    bounds = [float(one) for one in point.get("explicitBounds", [])]
    if len(texts) >= 32 or "bounds" in texts:
        raise RejectedError("no room for the tag of the bounds")
    packed = struct.pack(f"<{len(bounds)}d", *bounds)
    fields = {"bounds": packed, "counts": struct.pack(f"<{len(counts)}Q", *counts)}
    try:
        values = ExplicitBuckets(name=name, tags=texts | {"bounds": bounds_tag(packed)}, count=count, **fields)
    except ValueError as error:
        raise RejectedError(str(error)) from error
    return [values] if bounds else []


def _sketch(point: dict[str, Any], count: int) -> Sketch:
    """Return the sketch of an exponential histogram, at a scale at which its buckets are few enough."""
    scale, zeros = int(point.get("scale", 0)), int(point.get("zeroCount", 0))
    sides: list[dict[int, int]] = []
    for field in ("positive", "negative"):
        side = point.get(field, {})
        first = int(side.get("offset", 0))
        sides.append({first + at: int(n) for at, n in enumerate(side.get("bucketCounts", [])) if int(n)})
    if zeros + sum(sum(side.values()) for side in sides) != count:
        raise RejectedError("the buckets have another number of values")
    scale, fine = min(scale, 20), max(scale - 20, 0)
    sides = [_shifted(side, fine) for side in sides]
    while any(max(side) - min(side) >= MAX_BUCKETS for side in sides if side):
        scale -= 1
        sides = [_shifted(side, 1) for side in sides]
    if scale < -10:
        raise RejectedError("the scale is too small")
    positive, negative = map(_runs, sides)
    return Sketch(scale=scale, zero_count=zeros, positive=positive, negative=negative)


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


def _value(point: dict[str, Any]) -> int | float:
    if "asInt" in point:
        return int(point["asInt"])
    if "asDouble" in point:
        return _float(point["asDouble"])
    raise RejectedError("no value")


def _float(value: float | str) -> float:
    number = float(value)  # NaN and the infinities are text
    if not math.isfinite(number):
        raise RejectedError("not finite")
    return number


def _texts(owner: dict[str, Any]) -> dict[str, str]:
    return {one.get("key", ""): _text(one.get("value", {})) for one in owner.get("attributes", [])}


def _text(value: dict[str, Any]) -> str:
    content = _content(value)
    return content if isinstance(content, str) else json.dumps(content, separators=(",", ":"), sort_keys=True)


_SIMPLE = {"stringValue": str, "boolValue": bool, "intValue": int, "doubleValue": float, "bytesValue": str}
"""The kinds of values without others in them. Bytes are base64."""


def _content(value: dict[str, Any]) -> Any:
    for kind, content in value.items():
        if kind == "arrayValue":
            return [_content(one) for one in content.get("values", [])]
        if kind == "kvlistValue":
            return {one.get("key", ""): _content(one.get("value", {})) for one in content.get("values", [])}
        if kind in _SIMPLE:
            return _SIMPLE[kind](content)
    return ""
