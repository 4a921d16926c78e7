"""Reads the points of a scope quickly if its metrics are sums and gauges that were read before.

An SDK exports the same metrics again and again. Their names and attributes stay the same; only the times and values of
their points change, and each of these has eight bytes. So a serialized scope is constant bytes with values between
them. The constant bytes determine everything but the values. For these bytes, what `read_metric` returned is kept.
"""

from __future__ import annotations

import sys
from struct import Struct, unpack
from typing import TYPE_CHECKING, Any, NamedTuple

from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from tallystream.record import MAX_COUNT, Counter, FloatCounter, Gauge, Metric, UpDown
from tallystream_aggregator.otlp.points import Read, RejectedPoint, read_metric

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

MAX_POINTS = 100_000
"""The most points that are kept, about 1 kB each. When there are more, all are dropped."""

_LARGEST = sys.float_info.max
_PATTERN = 0x3FF0F0F0F0F0F0F0
"""Eight bytes for a value. They and their complement are floats, too, and differ in every byte."""
_COMPLEMENT = _PATTERN ^ 0xFFFFFFFFFFFFFFFF


class _Stream(NamedTuple):
    """A point without its times and its value. `metric` returns the metric with a value, which is at least `lowest`.

    Among the values of the scope, `time` is the place of the point's time, followed by its value. `has_start` tells
    whether its start time matters, which is before the time.
    """

    metric: Callable[[Any], Metric]
    lowest: float
    time: int
    has_start: bool


class _Known(NamedTuple):
    """The streams of a scope. `layout` tells where the times and values of the points are."""

    layout: Struct
    streams: list[_Stream]


class RepeatedScopes:
    """Reads scopes as `read_metric` reads their metrics.

    `_layouts` maps the number of metrics and the length of a scope → the layout of the last such scope, `_known` maps
    the constant bytes → the streams.
    """

    def __init__(self) -> None:
        self._layouts: dict[tuple[int, int], Struct] = {}
        self._known: dict[tuple[bytes, ...], _Known] = {}
        self._points = 0

    def read(self, scope: pb.ScopeMetrics) -> Iterable[Read | RejectedPoint]:
        """Return each point of a scope that has a value."""
        raw = scope.SerializeToString()
        size = len(scope.metrics), len(raw)
        layout = self._layouts.get(size)
        if layout is not None:
            fields = layout.unpack(raw)
            known = self._known.get(fields[::2])
            if known is not None:
                if known.layout is not layout:  # the same places, but maybe floats instead of integers
                    fields = known.layout.unpack(raw)
                return _points(known.streams, fields[1::2]) or _read(scope)
        points = list(_read(scope))
        streams = _streams(scope, points)
        if streams:
            if self._points + len(streams) > MAX_POINTS:
                self._layouts, self._known, self._points = {}, {}, 0
            layout = self._layouts[size] = _value_layout(scope)
            self._known[layout.unpack(raw)[::2]] = _Known(layout, streams)
            self._points += len(streams)
        return points


def _read(scope: pb.ScopeMetrics) -> Iterator[Read | RejectedPoint]:
    for metric in scope.metrics:
        yield from read_metric(metric)


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
            streams.append(_Stream(_with_value(point.metrics[0]), 0 if lasting else -_LARGEST, place, lasting))
            place += 2
    return streams if len(streams) == len(points) else []


def _value_layout(scope: pb.ScopeMetrics) -> Struct:
    """Return the layout of a serialized scope: constant bytes and values in turn, beginning and ending with bytes."""
    patterns, complements = _filled(scope, _PATTERN), _filled(scope, _COMPLEMENT)
    values = [place for place, (one, other) in enumerate(zip(patterns, complements, strict=True)) if one != other][::8]
    formats = ""
    for point in _data_points(scope):
        formats += "QQ" if point.start_time_unix_nano else "Q"
        formats += "q" if point.WhichOneof("value") == "as_int" else "d"
    layout, end = "<", 0
    for place, format_ in zip(values, formats, strict=True):
        layout += f"{place - end}s{format_}"
        end = place + 8
    return Struct(f"{layout}{len(patterns) - end}s")


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


def _points(streams: Sequence[_Stream], values: Sequence[Any]) -> list[Read] | None:
    """Return the points with these values, or None if one is to be refused."""
    points = []
    for metric, lowest, place, has_start in streams:
        start_ns, time_ns, value = values[place - 1] if has_start else 0, values[place], values[place + 1]
        if not (0 < time_ns <= MAX_COUNT and has_start <= start_ns <= MAX_COUNT and lowest <= value <= _LARGEST):
            return None
        points.append(Read(start_ns, time_ns, [metric(value)]))
    return points


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
