"""Reads the points of a scope by life and time, and quickly if the scope has sums and gauges that were read before.

An SDK exports the same metrics again and again. Their names and attributes stay the same; only the times and values of
their points change, and each of these has eight bytes. So a serialized scope is constant bytes with values between
them. The constant bytes determine everything but the values. What they determine is kept.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from functools import lru_cache
from operator import le
from struct import Struct, unpack
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from tallystream.record import MAX_COUNT, Counter, FloatCounter, Gauge, Metric, UpDown
from tallystream.ulid import ulid
from tallystream_aggregator.otlp.identity import texts_of
from tallystream_aggregator.otlp.points import Read, RejectedPoint, read_metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope

MAX_BYTES = 64 << 20
"""The most bytes that are kept, about. When there are more, all are dropped."""

POINT_BYTES = 600
"""What is kept of a point beside its constant bytes. These are kept twice: as names and tags, and as a mask."""

_LARGEST = sys.float_info.max
_PATTERN = 0x3FF0F0F0F0F0F0F0
"""Eight bytes for a value. They and their complement are floats, too, and differ in every byte."""
_COMPLEMENT = _PATTERN ^ 0xFFFFFFFFFFFFFFFF
_VALUE = re.compile(rb"\xff{8}")
"""The difference of the two."""


class Group(NamedTuple):
    """The points of a life with one time: all their metrics, and the first metric of each point. Times are epoch ns."""

    life: str
    start_ns: int
    time_ns: int
    metrics: list[Metric]
    firsts: list[Metric]


class ScopePoints(NamedTuple):
    """The points of a scope that have a value, and those that can't be taken."""

    groups: list[Group]
    rejected: list[RejectedPoint]


class _Mask(NamedTuple):
    """The constant bytes of a serialized scope have the bits 1, as a little-endian number. Each mask has a number."""

    bits: int
    number: int


class KnownScopes:
    """The scopes that were read before.

    `_masks` maps the length and the begin of a serialized scope → the mask of the last such scope, `_scopes` maps the
    mask's number and the constant bytes → what they determine.
    """

    def __init__(self) -> None:
        self._masks: dict[tuple[int, bytes], _Mask] = {}
        self._numbers: dict[int, int] = {}
        self._scopes: dict[tuple[int, bytes], KnownScope] = {}
        self._bytes = 0

    def find(self, raw: bytes) -> KnownScope | None:
        """Return what is known of a serialized scope."""
        mask = self._masks.get(_begin(raw))
        return None if mask is None else self._scopes.get(_key(mask, raw))

    def read(self, scope: pb.ScopeMetrics) -> ScopePoints:
        """Return the points of a scope, and keep what `find` returns of it."""
        raw = scope.SerializeToString()
        known = self.find(raw)
        if known is not None:
            return known.read(raw)
        scope_id = _id(scope.scope)
        points = [point for metric in scope.metrics for point in read_metric(metric)]
        streams = _streams(scope, points)
        size = 3 * len(raw) + POINT_BYTES * len(streams)
        if streams and size <= MAX_BYTES // 4:
            if self._bytes + size > MAX_BYTES:
                self._masks, self._numbers, self._scopes, self._bytes = {}, {}, {}, 0
            layout, bits = _layout(scope, raw)
            mask = _Mask(bits, self._numbers.setdefault(bits, len(self._numbers)))
            self._masks[_begin(raw)] = mask
            self._scopes[_key(mask, raw)] = KnownScope(scope_id, layout, streams)
            self._bytes += size
        return _grouped(scope_id, points)


class _Stream(NamedTuple):
    """A point without its times and its value. `metric` returns the metric with a value, which is at least `lowest`.

    Among the values of the scope, `time` is the place of the point's time, followed by its value. `start` is the place
    of its start time, -1 if that does not matter.
    """

    metric: Callable[[Any], Metric]
    lowest: float
    start: int
    time: int


class KnownScope:
    """What the constant bytes of a scope determine. `layout` tells where the times and values of the points are."""

    def __init__(self, scope_id: bytes, layout: Struct, streams: Sequence[_Stream]) -> None:
        self._id, self._layout = scope_id, layout
        self._metrics = [stream.metric for stream in streams]
        self._lowest = [stream.lowest for stream in streams]
        self._start_places = [stream.start for stream in streams]
        self._lowest_starts = [stream.start >= 0 for stream in streams]
        self._time_places = [stream.time for stream in streams]

    def read(self, raw: bytes) -> ScopePoints:
        """Return the points of a serialized scope with these constant bytes."""
        groups = self._groups(raw)
        if groups is not None:
            return ScopePoints(groups, [])
        metrics = pb.ScopeMetrics.FromString(raw).metrics
        return _grouped(self._id, [point for metric in metrics for point in read_metric(metric)])

    def _groups(self, raw: bytes) -> list[Group] | None:
        """Return the points, or None if one is to be refused."""
        values = (*self._layout.unpack(raw), 0)
        starts = [values[place] for place in self._start_places]
        times = [values[place] for place in self._time_places]
        numbers = [values[place + 1] for place in self._time_places]
        if not (
            min(times) > 0
            and max(times) <= MAX_COUNT
            and max(starts) <= MAX_COUNT
            and all(map(le, self._lowest_starts, starts))
            and all(map(le, self._lowest, numbers))  # NaN is not
            and max(numbers) <= _LARGEST
        ):
            return None
        found: dict[tuple[int, int], list[Metric]] = {}
        for at, metric, number in zip(zip(starts, times, strict=True), self._metrics, numbers, strict=True):
            own = found.get(at)
            if own is None:
                own = found[at] = []
            own.append(metric(number))
        return [Group(_life(self._id, at[0]), *at, own, own) for at, own in found.items()]


def _begin(raw: bytes) -> tuple[int, bytes]:
    """Return the length of a serialized scope and its first field, the name of the scope, if that is short."""
    return len(raw), raw[: raw[1] + 2] if raw[:1] == b"\n" and raw[1] < 0x80 else b""


def _key(mask: _Mask, raw: bytes) -> tuple[int, bytes]:
    return mask.number, (int.from_bytes(raw, "little") & mask.bits).to_bytes(len(raw), "little")


def _grouped(scope_id: bytes, points: Sequence[Read | RejectedPoint]) -> ScopePoints:
    rejected: list[RejectedPoint] = []
    groups: dict[tuple[int, int], Group] = {}
    for point in points:
        if isinstance(point, RejectedPoint):
            rejected.append(point)
            continue
        at = point.start_ns, point.time_ns
        group = groups.get(at)
        if group is None:
            group = groups[at] = Group(_life(scope_id, point.start_ns), *at, [], [])
        group.metrics.extend(point.metrics)
        group.firsts.append(point.metrics[0])
    return ScopePoints(list(groups.values()), rejected)


def _id(scope: InstrumentationScope) -> bytes:
    """Return what tells the streams of a scope from those of another one: a digest, however long its texts are."""
    named = json.dumps([scope.name, scope.version, sorted(texts_of(scope.attributes).items())])
    return hashlib.blake2b(named.encode(), digest_size=16).digest()


@lru_cache(maxsize=100_000)
def _life(scope_id: bytes, start_ns: int) -> str:
    """Return the life of the points of a scope with this start time: the same for the same ones, as a ULID."""
    digest = hashlib.blake2b(b"%d " % start_ns + scope_id, digest_size=10).digest()
    return ulid(start_ns // 1_000_000, int.from_bytes(digest))


def _streams(scope: pb.ScopeMetrics, points: Sequence[Read | RejectedPoint]) -> list[_Stream]:
    """Return the streams of these points, or none if one is refused or the scope has other metrics."""
    streams: list[_Stream] = []
    place = 0
    kept = iter(points)
    for metric in scope.metrics:
        kind = metric.WhichOneof("data")
        if kind not in ("sum", "gauge"):
            return []
        lasting = metric.sum.is_monotonic
        for data_point in getattr(metric, kind).data_points:
            point = next(kept, None)
            if not isinstance(point, Read):
                return []
            place += data_point.start_time_unix_nano > 0
            lowest = 0 if lasting else -_LARGEST
            streams.append(_Stream(_with_value(point.metrics[0]), lowest, place - 1 if lasting else -1, place))
            place += 2
    return streams if len(streams) == len(points) else []


def _layout(scope: pb.ScopeMetrics, raw: bytes) -> tuple[Struct, int]:
    """Return the layout of a serialized scope, which skips the constant bytes, and the bits of its mask."""
    patterns, complements = (int.from_bytes(_filled(scope, one), "little") for one in (_PATTERN, _COMPLEMENT))
    differences = (patterns ^ complements).to_bytes(len(raw), "little")
    formats = ""
    for point in _data_points(scope):
        formats += "QQ" if point.start_time_unix_nano else "Q"
        formats += "q" if point.WhichOneof("value") == "as_int" else "d"
    layout, end = "<", 0
    for place, format_ in zip(_VALUE.finditer(differences), formats, strict=True):
        layout += f"{place.start() - end}x{format_}"
        end = place.end()
    constant = (1 << 8 * len(raw)) - 1 ^ patterns ^ complements
    return Struct(f"{layout}{len(raw) - end}x"), constant


def _filled(scope: pb.ScopeMetrics, pattern: int) -> bytes:
    """Return a scope as bytes, with this pattern as every time and value."""
    filled = pb.ScopeMetrics()
    filled.CopyFrom(scope)
    raw = pattern.to_bytes(8, "little")
    for point in _data_points(filled):
        point.time_unix_nano = pattern
        if point.start_time_unix_nano:
            point.start_time_unix_nano = pattern
        if point.WhichOneof("value") == "as_int":
            (point.as_int,) = unpack("<q", raw)
        else:
            (point.as_double,) = unpack("<d", raw)
    return filled.SerializeToString()


def _data_points(scope: pb.ScopeMetrics) -> Iterator[pb.NumberDataPoint]:
    for metric in scope.metrics:
        yield from metric.sum.data_points or metric.gauge.data_points


def _with_value(metric: Metric) -> Callable[[Any], Metric]:
    """Return a function that returns this metric with another value."""
    name, tags = metric.name, metric.tags
    if isinstance(metric, Counter):
        return lambda value: Counter(name=name, tags=tags, count=value)
    if isinstance(metric, FloatCounter):
        return lambda value: FloatCounter(name=name, tags=tags, sum=value)
    if isinstance(metric, Gauge):
        return lambda value: Gauge(name=name, tags=tags, value=value)
    return lambda value: UpDown(name=name, tags=tags, value=value)
