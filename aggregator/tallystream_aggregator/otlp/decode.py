"""One record of an OTLP topic as snapshots: the resource is the instance, the start time the life, the time the seq.

All points of a resource and a scope with the same start time are a life, whose ULID has that time. Gauges and sums that
may fall have no use for a start time: they are the life of the time 0, whose newest point counts. The snapshots are not
complete: the Collector may divide the points of a resource over several records, and each point counts by itself.

A point whose start time is its own time is a baseline: its stream went on when somebody began to watch it, and what it
has counted by then is not of this stream (OpenTelemetry's data model, "unknown start time"). An SDK begins its streams
itself. So its points count even if their times are the same.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from tallystream.record import ExplicitBuckets, Snapshot
from tallystream_aggregator.otlp.identity import KnownResources, OtlpError, Resource
from tallystream_aggregator.otlp.scopes import KnownScope, KnownScopes
from tallystream_aggregator.otlp.wire import BYTES, fields_of
from tallystream_aggregator.times import DAY_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream.record import Metric
    from tallystream_aggregator.counters import SnapshotMetrics
    from tallystream_aggregator.otlp.points import RejectedPoint
    from tallystream_aggregator.otlp.scopes import Group

EVERY_MS = 60_000
"""The reporting interval that is assumed: the default of the SDKs."""

FEW_MESSAGES, MESSAGE_BYTES, OBJECT_BYTES = 100, 16, 8
"""A record has at most so many resources and scopes, and one more for each so many bytes; in JSON, so many objects.

Each takes some µs. Those that have data are larger.
"""

RESOURCE_METRICS = pb.MetricsData.RESOURCE_METRICS_FIELD_NUMBER
RESOURCE = pb.ResourceMetrics.RESOURCE_FIELD_NUMBER
SCOPE_METRICS = pb.ResourceMetrics.SCOPE_METRICS_FIELD_NUMBER
SCHEMA_URL = pb.ResourceMetrics.SCHEMA_URL_FIELD_NUMBER

__all__ = ["OtlpError", "ResourceData", "ResourceSnapshots", "read", "snapshots"]

_scopes = KnownScopes()
_resources = KnownResources()


class ResourceData(NamedTuple):
    """The data of one resource: what it is, and its scopes with their serialized forms."""

    resource: Resource
    scopes: Sequence[tuple[KnownScope | pb.ScopeMetrics, bytes]]


class ResourceSnapshots(NamedTuple):
    """The data of one resource: its snapshots in the order of their lives, and its rejected points.

    A snapshot is without its metrics: these are beside it, and whether it is a baseline. A rejected point is (reason,
    name and tags as JSON). There are `more_rejected` besides.
    """

    snapshots: list[tuple[Snapshot, SnapshotMetrics, bool]]
    rejected: list[tuple[str, str]]
    more_rejected: int


def read(value: bytes) -> list[ResourceData]:
    """Return the resources in a record that have data, in protobuf or in JSON.

    Raises:
        OtlpError: it is neither.
    """
    parts = None if value.startswith(b"{") else _parts(value)
    known = [data for part in parts or () if (data := _known(part)) is not None]
    if known and len(known) == len(parts or ()):
        return [data for data in known if data.scopes]
    found: list[ResourceData] = []
    for place, one in enumerate(_parsed(value).resource_metrics):
        part = _serialized(one) if parts is None else parts[place]
        scopes = [pair for pair in zip(one.scope_metrics, part.scopes, strict=True) if pair[0].metrics]
        if scopes:  # most messages of a hostile record have nothing
            found.append(ResourceData(_resources.read(one.resource, part.resource), scopes))
    return found


class _Part(NamedTuple):
    """A resource and its scopes, serialized."""

    resource: bytes
    scopes: list[bytes]


def _serialized(data: pb.ResourceMetrics) -> _Part:
    return _Part(data.resource.SerializeToString(), [scope.SerializeToString() for scope in data.scope_metrics])


def _known(part: _Part) -> ResourceData | None:
    """Return the data of a resource if it and all of its scopes were read before."""
    resource = _resources.find(part.resource)
    scopes = [(scope, raw) for raw in part.scopes if (scope := _scopes.find(raw)) is not None]
    return None if resource is None or len(scopes) < len(part.scopes) else ResourceData(resource, scopes)


def _parts(value: bytes) -> list[_Part] | None:
    """Return the resources of a record with their scopes, or None if it has fields that only a parser understands.

    Return None, too, if it has too many.
    """
    parts: list[_Part] = []
    left = FEW_MESSAGES + len(value) // MESSAGE_BYTES
    for field, kind, begin, end in fields_of(value, 0, len(value)):
        if field != RESOURCE_METRICS or kind != BYTES or left < 0:
            return None
        resource: bytes | None = None
        scopes: list[bytes] = []
        left -= 1
        for number, wire_type, first, last in fields_of(value, begin, end):
            left -= number == SCOPE_METRICS
            content = value[first:last]
            if wire_type != BYTES or left < 0 or (number == SCHEMA_URL and not content.isascii()):
                return None
            if number == RESOURCE and resource is None:
                resource = content
            elif number == SCOPE_METRICS:
                scopes.append(content)
            elif number != SCHEMA_URL:
                return None
        parts.append(_Part(resource or b"", scopes))
    return parts if left >= 0 else None


def _parsed(value: bytes) -> pb.MetricsData:
    data = pb.MetricsData()
    is_json = value.startswith(b"{")
    if is_json and value.count(b"{") > FEW_MESSAGES + len(value) // OBJECT_BYTES:
        raise OtlpError(f"the value is JSON with {value.count(b'{')} objects in {len(value)} bytes, most of them empty")
    try:
        if is_json:
            Parse(value, data, ignore_unknown_fields=True)
        else:
            data.ParseFromString(value)
    except (DecodeError, ParseError, UnicodeDecodeError, RecursionError) as error:
        # An error in JSON may quote half of a surrogate pair, which UTF-8 does not have.
        reason = str(error).encode(errors="backslashreplace").decode()
        raise OtlpError(f"the value is not OTLP metrics in protobuf or JSON: {reason}") from error
    if not data.resource_metrics and is_json and b"esource" not in value:
        raise OtlpError("the value is JSON without resourceMetrics")
    messages = len(data.resource_metrics) + sum(len(one.scope_metrics) for one in data.resource_metrics)
    if messages > FEW_MESSAGES + len(value) // MESSAGE_BYTES:
        raise OtlpError(f"the record has {messages} resources and scopes in {len(value)} bytes, most of them empty")
    return data


def snapshots(data: ResourceData, app: str, append_ms: int, max_rejected: int) -> ResourceSnapshots:
    """Return the data of a resource of an app. `append_ms` is the append time of its record, epoch ms.

    At most `max_rejected` rejected points are written as text.
    """
    grouped: dict[tuple[str, int], tuple[Snapshot, SnapshotMetrics, bool]] = {}
    refused: list[tuple[str, RejectedPoint | Metric]] = []
    first_ns, after_ns = ((append_ms + days * DAY_MS + 1) * 1_000_000 for days in (-1, 1))
    for scope, raw in data.scopes:
        found = scope.read(raw) if isinstance(scope, KnownScope) else _scopes.read(scope, raw)
        refused += [(point.reason, point) for point in found.rejected]
        for group in found.groups:
            if not first_ns <= group.time_ns < after_ns or group.start_ns >= after_ns:
                reason = _out_of_bounds(group, append_ms)
                refused += [(reason, metric) for metric in group.metrics if not isinstance(metric, ExplicitBuckets)]
                continue
            at = group.life, group.time_ns
            if at in grouped:  # the resource has the scope twice
                snapshot, metrics, is_baseline = grouped[at]
                grouped[at] = snapshot, [*metrics, *group.metrics], is_baseline
                continue
            time_ms = group.time_ns // 1_000_000
            snapshot = Snapshot(
                app=app,
                life=group.life,
                part=0,
                seq=group.time_ns,
                prev=time_ms,
                ts=time_ms,
                every_ms=EVERY_MS,
                final=False,
                complete=False,
                metrics=[],
            )
            is_baseline = group.start_ns == group.time_ns and not data.resource.is_sdk
            grouped[at] = snapshot, group.metrics, is_baseline
    in_order = [grouped[at] for at in sorted(grouped)]
    rejected = [(reason, _text(of.name, of.tags)) for reason, of in refused[:max_rejected]]
    return ResourceSnapshots(in_order, rejected, len(refused) - len(rejected))


def _out_of_bounds(points: Group, append_ms: int) -> str:
    """Return why points are too late or too early. The append time is that of their record."""
    ahead_ms = points.time_ns // 1_000_000 - append_ms
    if ahead_ms <= -DAY_MS:
        return f"too late: appended {-ahead_ms} ms after the point's time; the limit is {DAY_MS} ms"
    what, start_ahead_ms = "the point's time", points.start_ns // 1_000_000 - append_ms
    if start_ahead_ms > ahead_ms:
        what, ahead_ms = "the point's start time", start_ahead_ms
    return f"too early: {what} is {ahead_ms} ms ahead; the limit is {DAY_MS} ms"


def _text(name: str, tags: dict[str, str]) -> str:
    return json.dumps({"name": name, "tags": tags}, ensure_ascii=False)
