"""One record of an OTLP topic as snapshots: the resource is the instance, the start time the life, the time the seq.

All points of a resource and a scope with the same start time are a life, whose ULID has that time. Gauges and sums that
may fall have no use for a start time: they are the life of the time 0, whose newest point counts. The snapshots are not
complete: the Collector may divide the points of a resource over several records, and each point counts by itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from tallystream.record import Metric, Snapshot
from tallystream.ulid import ulid
from tallystream_aggregator.otlp.identity import OtlpError, app_of, instance_of, texts_of
from tallystream_aggregator.otlp.points import Read
from tallystream_aggregator.otlp.repeated import RepeatedScopes

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope

EVERY_MS = 60_000
"""The reporting interval that is assumed: the default of the SDKs."""

DAY_MS = 86_400_000
"""How long before the append time of its record the time of a point may be, and how far ahead it may be, in ms."""

MAX_REJECTED = 10
"""The most rejected points of a resource that have a text. A record has no more dead letters of points."""

__all__ = ["OtlpError", "ResourceSnapshots", "instance", "instances", "read", "snapshots"]

_scopes = RepeatedScopes()


class ResourceSnapshots(NamedTuple):
    """The data of one resource: its snapshots in the order of their lives, and its rejected points.

    A rejected point is (reason, name and tags as JSON). There are `more_rejected` besides the first ten.
    """

    instance: str
    snapshots: list[Snapshot]
    rejected: list[tuple[str, str]]
    more_rejected: int


def read(value: bytes) -> list[pb.ResourceMetrics]:
    """Return the resources in a record that have data, in protobuf or in JSON.

    Raises:
        OtlpError: it is neither.
    """
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
    return [one for one in data.resource_metrics if any(scope.metrics for scope in one.scope_metrics)]


def instances(value: bytes) -> set[str]:
    """Return the instance IDs in a record, without those that can't be used. A record that can't be read has none."""
    found = set[str]()
    with contextlib.suppress(OtlpError):
        for resource in read(value):
            with contextlib.suppress(OtlpError):
                found.add(instance(resource))
    return found


def instance(resource: pb.ResourceMetrics) -> str:
    """Return the instance ID of a resource.

    Raises:
        OtlpError: it can't be used.
    """
    return instance_of(texts_of(resource.resource.attributes))


def snapshots(resource: pb.ResourceMetrics, append_ms: int) -> ResourceSnapshots:
    """Return the data of a resource. `append_ms` is the append time of its record, epoch ms.

    Raises:
        OtlpError: its app or its instance can't be used.
    """
    attributes = texts_of(resource.resource.attributes)
    app, name = app_of(attributes), instance_of(attributes)
    grouped: dict[tuple[bytes, int, int], list[Metric]] = defaultdict(list)
    rejected: list[tuple[str, str]] = []
    more_rejected = 0
    for scope in resource.scope_metrics:
        if not scope.metrics:
            continue
        scope_id = _scope_id(scope.scope)
        for point in _scopes.read(scope):
            reason = _out_of_bounds(point, append_ms) if isinstance(point, Read) else point.reason
            if isinstance(point, Read) and reason is None:
                grouped[scope_id, point.start_ns, point.time_ns] += point.metrics
            elif len(rejected) < MAX_REJECTED:
                of = point.metrics[0] if isinstance(point, Read) else point
                rejected.append((reason or "", _text(of.name, of.tags)))
            else:
                more_rejected += 1
    made = [
        Snapshot(
            app=app,
            life=_life(scope_id, start_ns),
            part=0,
            seq=time_ns,
            prev=time_ns // 1_000_000,
            ts=time_ns // 1_000_000,
            every_ms=EVERY_MS,
            final=False,
            complete=False,
            metrics=metrics,
        )
        for (scope_id, start_ns, time_ns), metrics in grouped.items()
    ]
    made.sort(key=lambda snapshot: (snapshot.life, snapshot.seq))
    return ResourceSnapshots(name, made, rejected, more_rejected)


def _out_of_bounds(point: Read, append_ms: int) -> str | None:
    """Return why a point is too late or too early, None if it is neither. The append time is that of its record."""
    ahead_ms = point.time_ns // 1_000_000 - append_ms
    if ahead_ms <= -DAY_MS:
        return f"too late: appended {-ahead_ms} ms after the point's time; the limit is {DAY_MS} ms"
    what, start_ahead_ms = "the point's time", point.start_ns // 1_000_000 - append_ms
    if start_ahead_ms > ahead_ms:
        what, ahead_ms = "the point's start time", start_ahead_ms
    return f"too early: {what} is {ahead_ms} ms ahead; the limit is {DAY_MS} ms" if ahead_ms > DAY_MS else None


def _scope_id(scope: InstrumentationScope) -> bytes:
    """Return what tells the streams of a scope from those of another one."""
    return json.dumps([scope.name, scope.version, sorted(texts_of(scope.attributes).items())]).encode()


@lru_cache(maxsize=100_000)
def _life(scope_id: bytes, start_ns: int) -> str:
    """Return the life of the points of a scope with this start time: the same for the same ones, as a ULID."""
    digest = hashlib.blake2b(b"%d " % start_ns + scope_id, digest_size=10).digest()
    return ulid(start_ns // 1_000_000, int.from_bytes(digest))


def _text(name: str, tags: dict[str, str]) -> str:
    return json.dumps({"name": name, "tags": tags}, ensure_ascii=False)
