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

from tallystream.record import Snapshot
from tallystream_aggregator.otlp.identity import KnownResources, OtlpError, app_of, instance_of
from tallystream_aggregator.otlp.scopes import KnownScopes
from tallystream_aggregator.otlp.wire import fields_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tallystream.record import Metric
    from tallystream_aggregator.otlp.points import RejectedPoint
    from tallystream_aggregator.otlp.scopes import Group, KnownScope

EVERY_MS = 60_000
"""The reporting interval that is assumed: the default of the SDKs."""

DAY_MS = 86_400_000
"""How long before the append time of its record the time of a point may be, and how far ahead it may be, in ms."""

MAX_REJECTED = 10
"""The most rejected points of a resource that have a text. A record has no more dead letters of points."""
SDK = "telemetry.sdk.language"
"""An attribute that the resource of every SDK has."""

RESOURCE_METRICS = pb.MetricsData.RESOURCE_METRICS_FIELD_NUMBER
RESOURCE = pb.ResourceMetrics.RESOURCE_FIELD_NUMBER
SCOPE_METRICS = pb.ResourceMetrics.SCOPE_METRICS_FIELD_NUMBER
SCHEMA_URL = pb.ResourceMetrics.SCHEMA_URL_FIELD_NUMBER

__all__ = ["OtlpError", "ResourceData", "ResourceSnapshots", "instance", "read", "snapshots"]

_scopes = KnownScopes()
_resources = KnownResources()


class ResourceData(NamedTuple):
    """The data of one resource: its attributes, and its scopes.

    A known scope is serialized, and beside what is known of it.
    """

    attributes: Mapping[str, str]
    scopes: Sequence[pb.ScopeMetrics | tuple[KnownScope, bytes]]


class ResourceSnapshots(NamedTuple):
    """The data of one resource: its snapshots in the order of their lives, and its rejected points.

    The snapshots that are baselines are in `baselines`, too. A rejected point is (reason, name and tags as JSON). There
    are `more_rejected` besides the first ten.
    """

    instance: str
    snapshots: list[Snapshot]
    baselines: list[Snapshot]
    rejected: list[tuple[str, str]]
    more_rejected: int


def read(value: bytes) -> list[ResourceData]:
    """Return the resources in a record that have data, in protobuf or in JSON.

    Raises:
        OtlpError: it is neither.
    """
    return _known(value) or _parsed(value)


def _known(value: bytes) -> list[ResourceData] | None:
    """Return the resources of a record in protobuf, or None if one of them, or one of their scopes, is not known."""
    found: list[ResourceData] = []
    for number, resource in fields_of(value):
        if number != RESOURCE_METRICS:
            return None
        attributes: Mapping[str, str] | None = None
        scopes: list[tuple[KnownScope, bytes]] = []
        for place, (part, content) in enumerate(fields_of(resource)):
            if part == RESOURCE and place == 0:
                attributes = _resources.find(content)
            elif part == SCOPE_METRICS:
                known = _scopes.find(content)
                if known is None:
                    return None
                scopes.append((known, content))
            elif part != SCHEMA_URL or not content.isascii():
                return None
        if attributes is None:
            return None
        if scopes:
            found.append(ResourceData(attributes, scopes))
    return found


def _parsed(value: bytes) -> list[ResourceData]:
    data = pb.MetricsData()
    try:
        if value.startswith(b"{"):
            Parse(value, data, ignore_unknown_fields=True)
        else:
            data.ParseFromString(value)
    except (DecodeError, ParseError, UnicodeDecodeError, RecursionError) as error:
        # An error in JSON may quote half of a surrogate pair, which UTF-8 does not have.
        reason = str(error).encode(errors="backslashreplace").decode()
        raise OtlpError(f"the value is not OTLP metrics in protobuf or JSON: {reason}") from error
    if not data.resource_metrics and value.startswith(b"{") and b"esource" not in value:
        raise OtlpError("the value is JSON without resourceMetrics")
    return [
        ResourceData(_resources.read(one.resource), [scope for scope in one.scope_metrics if scope.metrics])
        for one in data.resource_metrics
        if any(scope.metrics for scope in one.scope_metrics)
    ]


def instance(resource: ResourceData) -> str:
    """Return the instance ID of a resource.

    Raises:
        OtlpError: it can't be used.
    """
    return instance_of(resource.attributes)


def snapshots(resource: ResourceData, append_ms: int) -> ResourceSnapshots:
    """Return the data of a resource. `append_ms` is the append time of its record, epoch ms.

    Raises:
        OtlpError: its app or its instance can't be used.
    """
    attributes = resource.attributes
    app, name = app_of(attributes), instance_of(attributes)
    grouped: dict[tuple[str, int], Snapshot] = {}
    baselines: list[Snapshot] = []
    refused: list[tuple[str, RejectedPoint | Metric]] = []
    for scope in resource.scopes:
        points = scope[0].read(scope[1]) if isinstance(scope, tuple) else _scopes.read(scope)
        refused += [(point.reason, point) for point in points.rejected]
        for group in points.groups:
            if reason := _out_of_bounds(group, append_ms):
                refused += [(reason, first) for first in group.firsts]
                continue
            at = group.life, group.time_ns
            known = grouped.get(at)
            if known is not None:  # the resource has the scope twice
                known.metrics = known.metrics + group.metrics
                continue
            made = grouped[at] = Snapshot(
                app=app,
                life=group.life,
                part=0,
                seq=group.time_ns,
                prev=group.time_ns // 1_000_000,
                ts=group.time_ns // 1_000_000,
                every_ms=EVERY_MS,
                final=False,
                complete=False,
                metrics=group.metrics,
            )
            if group.start_ns == group.time_ns and SDK not in attributes:
                baselines.append(made)
    in_order = [grouped[at] for at in sorted(grouped)]
    rejected = [(reason, _text(of.name, of.tags)) for reason, of in refused[:MAX_REJECTED]]
    return ResourceSnapshots(name, in_order, baselines, rejected, len(refused) - len(rejected))


def _out_of_bounds(points: Group, append_ms: int) -> str | None:
    """Return why points are too late or too early, or None. The append time is that of their record."""
    ahead_ms = points.time_ns // 1_000_000 - append_ms
    if ahead_ms <= -DAY_MS:
        return f"too late: appended {-ahead_ms} ms after the point's time; the limit is {DAY_MS} ms"
    what, start_ahead_ms = "the point's time", points.start_ns // 1_000_000 - append_ms
    if start_ahead_ms > ahead_ms:
        what, ahead_ms = "the point's start time", start_ahead_ms
    return f"too early: {what} is {ahead_ms} ms ahead; the limit is {DAY_MS} ms" if ahead_ms > DAY_MS else None


def _text(name: str, tags: dict[str, str]) -> str:
    return json.dumps({"name": name, "tags": tags}, ensure_ascii=False)
