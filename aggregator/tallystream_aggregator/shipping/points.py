"""Turns sums, events and the rows of single instances into points. docs/stores.md shows the schema."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from tallystream.decoding import json_decoder
from tallystream_aggregator import sums
from tallystream_aggregator.sinks.base import INSTANCE_PREFIX, RESERVED, Field, Point, free
from tallystream_aggregator.table.rows import LifeRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.shipping.subscription import Record
    from tallystream_aggregator.sums import Sum
    from tallystream_aggregator.table.rows import MetricRow

log = logging.getLogger(__name__)

INTEGERS = ("count", "number", "start", "position")
FLOATS = (
    *("sum", "min", "max", "mean"),
    *("mean_rate", "m1_rate", "m5_rate", "m15_rate"),
    *("p50", "p75", "p95", "p98", "p99", "p999"),
)
ALWAYS = ("lives", "instances", "retired")


def point(row: Sum) -> Point:
    """Return the point of a sum. Its measurement is the metric's name, and `app` and `metric_type` are further tags.

    Each field always has the same type, as InfluxDB requires: counts are integers, all others are floats.
    """
    fields: dict[str, Field] = {name: int(value) for name in INTEGERS if (value := getattr(row, name)) is not None}
    fields |= {name: float(value) for name in FLOATS if (value := getattr(row, name)) is not None}
    fields |= {name: int(getattr(row, name)) for name in ALWAYS}
    if row.overflow:
        fields["overflow"] = True
    tags = {free(name): value for name, value in row.tags.items()}
    return Point(row.name, {**tags, "app": row.app, "metric_type": row.type}, fields, row.ts, bytes(row.sketch))


ROW_INTEGERS = ("count", "start", "position")
ROW_FLOATS = ("value", "sum", "min", "max", "mean_rate", "m1_rate", "m5_rate", "m15_rate")
_RESERVED = RESERVED | {"instance"}


def row_points(row: LifeRow) -> Iterator[Point]:
    """Yield a point for each metric of the life's newest snapshot, with the snapshot's append time.

    The life is a field: as a tag, every restart would start new series.
    """
    for metric in row.metrics:
        if metric.seq is None:  # other metrics were in an earlier snapshot, which made their points
            tags = {free(name, _RESERVED): value for name, value in metric.tags.items()}
            tags |= {"app": row.app, "metric_type": metric.type, "instance": row.instance}
            yield Point(INSTANCE_PREFIX + metric.name, tags, _fields(row, metric), row.last_seen_ms)


def _fields(row: LifeRow, metric: MetricRow) -> dict[str, Field]:
    fields: dict[str, Field] = {
        name: int(value) for name in ROW_INTEGERS if (value := getattr(metric, name)) is not None
    }
    fields |= {name: float(value) for name in ROW_FLOATS if (value := getattr(metric, name)) is not None}
    return fields | ({"life": row.life} if row.life else {})


EVENTS = "tallystream.events"


class EventRow(msgspec.Struct, kw_only=True):
    """A row of `metrics-events`. `ts` is in epoch ms. An event that no record caused has no offset."""

    kind: str
    app: str
    instance: str = ""
    life: str = ""
    ts: int
    topic: str = ""
    partition: int = -1
    offset: int = -1
    detail: str = ""


_decode = json_decoder(EventRow)


def event_point(value: bytes) -> Point:
    """Return the point of an event. The same event always gives the same point.

    The detail is a tag, so that two limits that an instance reaches at the same time are two points.

    Raises:
        msgspec.DecodeError: the value is not a row of `metrics-events`.
    """
    row = _decode(value)
    about = row.instance or row.app
    fields: dict[str, Field] = {"text": f"{row.kind}: {about}" + (f", {row.detail}" if row.detail else "")}
    if row.life:
        fields["life"] = row.life
    if row.offset >= 0:
        fields |= {"partition": row.partition, "offset": row.offset}
    tags = {"kind": row.kind, "app": row.app, "instance": row.instance, "detail": row.detail}
    return Point(EVENTS, {name: value for name, value in tags.items() if value}, fields, row.ts)


LIFE = b'["life",'
"""The prefix of the keys of `metrics-table` that are shipped."""

_decode_life = json_decoder(LifeRow)


def is_sum(measurement: str) -> bool:
    """Return whether a measurement of the store has sums, by its name."""
    return measurement != EVENTS and not measurement.startswith(INSTANCE_PREFIX)


class PointMapper:
    """Turns records into points. `unreadable` counts records that can't be decoded."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self.unreadable = 0

    def points(self, records: Iterable[Record]) -> list[Point]:
        """Return the points of records, in the same order."""
        return [one for record in records for one in self._try(record) or ()]

    def newest(self, records: Sequence[Record]) -> list[Point]:
        """Return the points of the newest record of each key that can be decoded."""
        found: dict[tuple[str, bytes | None], list[Point]] = {}
        for record in reversed(records):
            key = (record.topic, record.key)
            if key not in found and (points := self._try(record)) is not None:
                found[key] = points
        return [one for points in found.values() for one in points]

    def _try(self, record: Record) -> list[Point] | None:
        """Return the points of a record, None if it can't be decoded."""
        try:
            return list(self._points_of(record))
        except msgspec.DecodeError as error:
            self.unreadable += 1
            log.warning("%s, offset %d can't be read and is not shipped: %s", record.topic, record.offset, error)
            return None

    def _points_of(self, record: Record) -> Iterable[Point]:
        if record.value is None:  # a deletion: of a sum without a metric, or of a life that was forgotten
            return ()
        if record.topic == self._topics.agg:
            return [point(sums.decode(record.value))]
        if record.topic == self._topics.events:
            return [event_point(record.value)]
        return row_points(_life(record.value)) if (record.key or b"").startswith(LIFE) else ()


def _life(value: bytes) -> LifeRow:
    row = _decode_life(value)
    for metric in row.metrics:
        sums.require_floats(*(getattr(metric, name) for name in ROW_FLOATS))
    return row
