"""Reads the points of a scope by life and time, and quickly if the scope has sums and gauges that were read before.

An SDK exports the same metrics again and again. Their names and attributes stay the same; only the times and values of
their points change, and each of these has eight bytes. So a serialized scope is constant bytes with values between
them. The constant bytes determine everything but the values. What they determine is kept.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections import defaultdict
from functools import lru_cache
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from tallystream.metric_types import NAMES
from tallystream.record import MAX_COUNT, Counter, Metric
from tallystream.ulid import ulid
from tallystream_aggregator.counters import Counters, SnapshotMetrics
from tallystream_aggregator.otlp.identity import texts_of
from tallystream_aggregator.otlp.points import Read, RejectedPoint, read_metric
from tallystream_aggregator.otlp.wire import BYTES, FIXED64, fields_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope

MAX_BYTES = 64 << 20
"""The most bytes that are kept, about. When there are more, all are dropped."""

POINT_BYTES = 1_000
"""What is kept of a point beside its constant bytes. These are kept twice: as names and tags, and as a mask."""

MAX_SEEN = 100_000
"""The most scopes that are noted when they are read for the first time. When there are more, all are dropped."""

NO_START = -1
"""The position that stands for a start time that does not matter: that of the last value, which is 0."""

_LARGEST = sys.float_info.max
_MAX_MASKS = 4
"""How many masks are tried for scopes of one length."""
_MAX_DIVISIONS = 2
"""How many divisions of the points of a scope are tried."""

_UNREAD = 0
"""The number of what `fields_of` does not read. It may replace what is before it, so such a scope is not kept."""
_METRICS = pb.ScopeMetrics.METRICS_FIELD_NUMBER
_ANY_DATA = {_UNREAD, *range(pb.Metric.GAUGE_FIELD_NUMBER, pb.Metric.METADATA_FIELD_NUMBER)}
_DATA = {pb.Metric.SUM_FIELD_NUMBER, pb.Metric.GAUGE_FIELD_NUMBER}
_POINTS = pb.Sum.DATA_POINTS_FIELD_NUMBER
_START = pb.NumberDataPoint.START_TIME_UNIX_NANO_FIELD_NUMBER
_TIME = pb.NumberDataPoint.TIME_UNIX_NANO_FIELD_NUMBER
_EXEMPLARS = pb.NumberDataPoint.EXEMPLARS_FIELD_NUMBER
_NUMBERS = {pb.NumberDataPoint.AS_INT_FIELD_NUMBER: "q", pb.NumberDataPoint.AS_DOUBLE_FIELD_NUMBER: "d"}
"""The field of a point's value → its format."""
_encode = json.JSONEncoder(check_circular=False).encode


class Group(msgspec.Struct, gc=False):
    """The metrics of the points of a life with one time. Times are epoch ns."""

    life: str
    start_ns: int
    time_ns: int
    metrics: SnapshotMetrics


class ScopePoints(NamedTuple):
    """The points of a scope that have a value, and those that can't be taken."""

    groups: list[Group]
    rejected: list[RejectedPoint]


class _Mask:
    """The constant bytes of a serialized scope have all `bits`, the others none.

    `scopes` maps the constant bytes → what they determine. `newest` is the last one that was found, with these bytes:
    most scopes are equal to it.
    """

    __slots__ = ("_bytes", "bits", "newest", "scopes")

    def __init__(self, bits: bytes) -> None:
        self.bits, self._bytes = bits, np.frombuffer(bits, np.uint8)
        self.newest: tuple[bytes, KnownScope | None] = (b"", None)
        self.scopes: dict[bytes, KnownScope] = {}

    def find(self, raw: bytes) -> KnownScope | None:
        """Return what the constant bytes of a serialized scope determine."""
        constant = self._constant(raw)
        if constant != self.newest[0]:
            self.newest = constant, self.scopes.get(constant)
        return self.newest[1]

    def add(self, raw: bytes, known: KnownScope) -> None:
        """Keep what the constant bytes of a serialized scope determine."""
        self.newest = self._constant(raw), known
        self.scopes[self.newest[0]] = known

    def _constant(self, raw: bytes) -> bytes:
        return (np.frombuffer(raw, np.uint8) & self._bytes).tobytes()


class KnownScopes:
    """The scopes that were read twice. `_masks` maps the length of a serialized scope → the masks of such scopes.

    `_seen` has hashes of those that were read once, or more often.
    """

    def __init__(self) -> None:
        self._masks: dict[int, list[_Mask]] = {}
        self._bytes = 0
        self._seen: set[int] = set()

    def find(self, raw: bytes) -> KnownScope | None:
        """Return what is known of a serialized scope."""
        for mask in self._masks.get(len(raw), ()):
            known = mask.find(raw)
            if known is not None:
                return known
        return None

    def read(self, scope: pb.ScopeMetrics, raw: bytes) -> ScopePoints:
        """Return the points of a scope, which is `raw` when serialized, and keep what `find` returns of it."""
        known = self.find(raw)
        if known is not None:
            return known.read(raw)
        points = [point for metric in scope.metrics for point in read_metric(metric)]
        taken = [point for point in points if isinstance(point, Read)]
        if not taken:
            return ScopePoints([], points)  # type: ignore[arg-type]  # all are rejected
        scope_id = _id(scope.scope)
        size = 3 * len(raw) + POINT_BYTES * len(points)
        is_numbers = all(metric.HasField("sum") or metric.HasField("gauge") for metric in scope.metrics)
        can_be_kept = is_numbers and len(taken) == len(points) and size <= MAX_BYTES // 4
        if can_be_kept and self._returns(scope_id, raw, taken):
            self._keep(scope_id, raw, taken, size)
        return _grouped(scope_id, points)

    def _returns(self, scope_id: bytes, raw: bytes, points: Sequence[Read]) -> bool:
        """Tell whether a scope with these metrics was read before. Many of a hostile record never come back."""
        names = ((metric.name, *metric.tags.items()) for point in points for metric in point.metrics[:1])
        seen = hash((scope_id, len(raw), *names))
        if seen in self._seen:
            return True
        if len(self._seen) == MAX_SEEN:
            self._seen.clear()
        self._seen.add(seen)
        return False

    def _keep(self, scope_id: bytes, raw: bytes, points: Sequence[Read], size: int) -> None:
        """Keep what `find` returns of a scope, if it can be found again. That has this `size` in bytes."""
        places = _places(raw)
        if places is None or len(places) != len(points):
            return
        if self._bytes + size > MAX_BYTES:
            self._masks, self._bytes = {}, 0
        known = KnownScope(scope_id, raw, points, places)
        masks = self._masks.setdefault(len(raw), [])
        mask = next((one for one in masks if one.bits == known.constant_bits), None)
        if mask is None:
            mask = _Mask(known.constant_bits)
            masks.insert(0, mask)
            del masks[_MAX_MASKS:]
        mask.add(raw, known)
        self._bytes += size


class _Places(NamedTuple):
    """Where a serialized scope has the start time, the time and the value of a point, and the value's format.

    The start is -1 if it has none.
    """

    start: int
    time: int
    value: int
    format: str


class KnownScope:
    """What the constant bytes of a scope determine: its points without their times and values.

    `constant_bits` has all bits where the serialized scope has constant bytes, and none elsewhere.
    `_divisions` are the ways in which the points were divided by their times, the newest first.
    """

    def __init__(self, scope_id: bytes, raw: bytes, points: Sequence[Read], places: Sequence[_Places]) -> None:
        self._id = scope_id
        formats = {place: "Q" for one in places for place in (one.start, one.time) if place >= 0}
        formats |= {one.value: one.format for one in places}
        between, end, constant = "<", 0, bytearray(b"\xff" * len(raw))
        for place in sorted(formats):
            between += f"{place - end}x{formats[place]}"
            end = place + 8
            constant[place:end] = bytes(8)
        self.constant_bits = bytes(constant)
        self._between = Struct(between + f"{len(raw) - end}x")
        order = {place: number for number, place in enumerate(sorted(formats))}
        self._points = [
            _Point(read.metrics[0], order[one.start] if read.start_ns else NO_START, order[one.time], order[one.value])
            for read, one in zip(points, places, strict=True)
        ]
        self._divisions: list[list[_Together]] = []

    def read(self, raw: bytes) -> ScopePoints:
        """Return the points of a serialized scope with these constant bytes."""
        groups = self._read((*self._between.unpack(raw), 0))
        if groups is not None:
            return ScopePoints(groups, [])
        metrics = pb.ScopeMetrics.FromString(raw).metrics
        return _grouped(self._id, [point for metric in metrics for point in read_metric(metric)])

    def _read(self, values: Sequence[Any]) -> list[Group] | None:
        """Return the points with these times and values, or None if one is to be refused."""
        for division in self._divisions:
            groups = self._divided(division, values)
            if groups is not None:
                return groups
        found: defaultdict[tuple[int, int], list[_Point]] = defaultdict(list)
        for point in self._points:
            found[values[point.start], values[point.time]].append(point)
        division = list(map(_Together, found.values()))
        groups = self._divided(division, values)
        if groups is not None:
            self._divisions.insert(0, division)
            del self._divisions[_MAX_DIVISIONS:]
        return groups

    def _divided(self, division: list[_Together], values: Sequence[Any]) -> list[Group] | None:
        """Return the points in this division, or None if they have to be divided otherwise or one is to be refused."""
        groups: list[Group] = []
        for together in division:
            group = together.read(self._id, values)
            if group is None:
                return None
            groups.append(group)
        times = {(group.start_ns, group.time_ns) for group in groups}
        return groups if len(times) == len(groups) else None


class _Point(NamedTuple):
    """A point of a known scope: as a metric with any value, and the positions of its times and its value."""

    metric: Metric
    start: int
    time: int
    value: int


class _Together:
    """Points of a known scope that have the same times. `_values` returns all their starts, times and values."""

    __slots__ = ("_are_counters", "_metrics", "_size", "_starts_at", "_values")

    def __init__(self, points: Sequence[_Point]) -> None:
        metrics, starts, times, values = zip(*points, strict=True)
        self._metrics: tuple[Metric, ...] = metrics
        self._size = len(points)
        self._starts_at = int(max(starts) != NO_START)
        self._are_counters = all(isinstance(metric, Counter) for metric in metrics)
        self._values = itemgetter(*starts, *times, *values)

    def read(self, scope_id: bytes, values: Sequence[Any]) -> Group | None:
        """Return the points, or None if they have different times or one is to be refused."""
        size, own = self._size, self._values(values)
        start_ns, time_ns, numbers = own[0], own[size], own[2 * size :]
        if not (
            own[:size].count(start_ns) == own[size : 2 * size].count(time_ns) == size
            and self._starts_at <= start_ns <= MAX_COUNT
            and 0 < time_ns <= MAX_COUNT
        ):
            return None
        if self._are_counters:
            if min(numbers) < 0:
                return None
            metrics: SnapshotMetrics = Counters(self._metrics, numbers)  # type: ignore[arg-type]  # counters
        else:
            lowest = 0 if self._starts_at else -_LARGEST
            if not all(lowest <= number <= _LARGEST for number in numbers):  # NaN is not
                return None
            metrics = list(map(_with_value, self._metrics, numbers))
        return Group(_life(scope_id, start_ns), start_ns, time_ns, metrics)


def _grouped(scope_id: bytes, points: Iterable[Read | RejectedPoint]) -> ScopePoints:
    """Return points by their start time and time, in the order in which these first occur."""
    found: defaultdict[tuple[int, int], list[Metric]] = defaultdict(list)
    rejected: list[RejectedPoint] = []
    for point in points:
        if isinstance(point, RejectedPoint):
            rejected.append(point)
        else:
            found[point.start_ns, point.time_ns] += point.metrics
    groups = [Group(_life(scope_id, start), start, time, metrics) for (start, time), metrics in found.items()]
    return ScopePoints(groups, rejected)


def _id(scope: InstrumentationScope) -> bytes:
    """Return what tells the streams of a scope from those of another one: a digest, however long its texts are."""
    named = _encode([scope.name, scope.version, sorted(texts_of(scope.attributes).items())])
    return hashlib.blake2b(named.encode(), digest_size=16).digest()


@lru_cache(maxsize=10_000)
def _life(scope_id: bytes, start_ns: int) -> str:
    """Return the life of the points of a scope with this start time: the same for the same ones, as a ULID."""
    digest = hashlib.blake2b(b"%d " % start_ns + scope_id, digest_size=10).digest()
    return ulid(start_ns // 1_000_000, int.from_bytes(digest))


def _places(raw: bytes) -> list[_Places] | None:
    """Return the places of each point of a serialized scope, or None if it has other metrics than sums and gauges."""
    found: list[_Places] = []
    for number, kind, *at in fields_of(raw, 0, len(raw)):
        if number not in (_METRICS, _UNREAD):
            continue
        data = [field for field in fields_of(raw, *at) if field[0] in _ANY_DATA]
        if len(data) != 1 or data[0][0] not in _DATA or kind != BYTES:
            return None
        for part, _, *point in fields_of(raw, *data[0][2:]):
            if part in (_POINTS, _UNREAD):
                places = _places_of_point(raw, *point)
                if places is None:
                    return None
                found.append(places)
    return found


def _places_of_point(raw: bytes, begin: int, end: int) -> _Places | None:
    """Return the places of a point, or None if it has a field twice, no time or value, or an exemplar: these change."""
    places: dict[int, int] = {}
    for number, kind, place, _ in fields_of(raw, begin, end):
        if number in (_EXEMPLARS, _UNREAD) or number in places:
            return None
        if kind == FIXED64:
            places[number] = place
    values = [number for number in _NUMBERS if number in places]
    if len(values) != 1 or _TIME not in places:
        return None
    return _Places(places.get(_START, -1), places[_TIME], places[values[0]], _NUMBERS[values[0]])


def _with_value(metric: Metric, value: Any) -> Metric:
    """Return this metric with another value."""
    return type(metric)(name=metric.name, tags=metric.tags, **{NAMES[metric.type][0]: value})
