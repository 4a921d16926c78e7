"""Real stores, one in memory, and their points. As a script, it writes points from another process."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tallystream_aggregator.sinks.base import Field, Point, Series
from tallystream_aggregator.sinks.stores import StoreSettings, open_sink, open_store

NOW_MS = time.time_ns() // 10**6 - 3_600_000
"""The time of the tests' points, epoch ms: within every retention."""


@dataclass(frozen=True)
class Influx:
    """The address of a real InfluxDB, as the fixture `influxdb` returns it; its representation hides the token."""

    url: str
    token: str = field(repr=False)
    org: str
    bucket: str


@contextmanager
def influx_bucket(influxdb: Influx, name: str, *, retention_s: int = 0) -> Iterator[StoreSettings]:
    """Create a bucket, which is deleted at the end of the block. With a retention of 0 it keeps all points."""
    from influxdb_client import BucketRetentionRules, InfluxDBClient

    with InfluxDBClient(url=influxdb.url, token=influxdb.token, org=influxdb.org) as client:
        rules = BucketRetentionRules(type="expire", every_seconds=retention_s)
        bucket = client.buckets_api().create_bucket(bucket_name=name, retention_rules=[rules])
        try:
            yield StoreSettings("influxdb", influxdb.url, token=influxdb.token, org=influxdb.org, bucket=name)
        finally:
            client.buckets_api().delete_bucket(bucket)


def write(settings: StoreSettings, points: Sequence[Point]) -> int:
    """Set up the store and write the points; return how many were rejected."""
    sink = open_sink(settings)
    try:
        sink.setup()
        return len(sink.write(points))
    finally:
        sink.close()


Content = dict[tuple[tuple[str, str], ...], dict[int, dict[str, "Field"]]]
"""Series (its sorted tags) → time in ms → field → value."""


def content(
    settings: StoreSettings,
    measurement: str,
    fields: Sequence[str],
    *,
    start_ms: int = 0,
    end_ms: int = NOW_MS * 2,
    tags: Mapping[str, str] | None = None,
    **only: bool,
) -> Content:
    """Return the points of a new reader, `only` those. Check that it returns each series once and in order of time."""
    reader = open_store(settings)
    try:
        found = reader.read(measurement, fields, start_ms=start_ms, end_ms=end_ms, tags=tags, **only)
    finally:
        reader.close()
    keys = [(sorted(series.tags.items()), series.field) for series in found]
    assert keys == sorted(keys)
    assert len({str(key) for key in keys}) == len(keys)
    result: Content = {}
    for series in found:
        assert series.measurement == measurement
        assert series.times_ms == sorted(set(series.times_ms))
        points = result.setdefault(tuple(sorted(series.tags.items())), {})
        for ts_ms, value in zip(series.times_ms, series.values, strict=True):
            points.setdefault(ts_ms, {})[series.field] = value
    return result


class Points:
    """Points that can be read as from a store."""

    def __init__(self, points: Iterable[Point] = ()) -> None:
        self.points = list(points)

    def measurements(self) -> list[str]:
        return sorted({one.measurement for one in self.points})

    def read(
        self,
        measurement: str,
        fields: Sequence[str],
        *,
        start_ms: int,
        end_ms: int,
        tags: Mapping[str, str] | None = None,
        last_before: bool = False,
        newest: bool = False,
    ) -> list[Series]:
        """Return the values of the fields, for each series, sorted by its tags and then by field."""
        wanted = (tags or {}).items()
        found: dict[tuple[tuple[tuple[str, str], ...], str], dict[int, Field]] = {}
        for point in sorted(self.points, key=lambda one: one.ts_ms):
            is_before = point.ts_ms < start_ms
            if point.measurement != measurement or point.ts_ms >= end_ms or not wanted <= point.tags.items():
                continue
            for name in point.fields.keys() & set(fields) if last_before or not is_before else ():
                values = found.setdefault((tuple(sorted(point.tags.items())), name), {})
                if is_before or newest:
                    values.clear()
                values[point.ts_ms] = point.fields[name]
        return [
            Series(measurement, dict(tags), name, list(values), list(values.values()))
            for (tags, name), values in sorted(found.items())
        ]

    def close(self) -> None:
        """Release nothing."""


def writers_points(writer: str, batch: int, base_ms: int) -> list[Point]:
    """Return one batch of a process: its own series, and its own field of points that all processes write."""
    own = [Point("own", {"writer": writer}, {"count": batch * 10 + i}, base_ms + batch * 10 + i) for i in range(10)]
    return [*own, *(Point("shared", {}, {writer: point.ts_ms}, point.ts_ms) for point in own)]


def _main(spec: str, writer: str, batches: str, base_ms: str) -> None:
    sink = open_sink(StoreSettings.parse(spec, retention_days=1.0))
    sink.setup()
    for batch in range(int(batches)):
        sink.write(writers_points(writer, batch, int(base_ms)))
    sink.close()


if __name__ == "__main__":
    _main(*sys.argv[1:])
