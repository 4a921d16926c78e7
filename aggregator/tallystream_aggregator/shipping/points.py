"""Turns sums, events and the rows of single instances into points. docs/stores.md shows the schema."""

from __future__ import annotations

import logging
from itertools import accumulate
from typing import TYPE_CHECKING

import msgspec

from tallystream.decoding import json_decoder
from tallystream.metric_types import NAMES, WHOLE
from tallystream.validation import free
from tallystream_aggregator import sums
from tallystream_aggregator.sinks.base import EVENTS, INSTANCE_PREFIX, RESERVED, Field, Point
from tallystream_aggregator.table.records.outputs import Event
from tallystream_aggregator.table.rows import LifeRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tallystream.record import Metric
    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.shipping.tail import Record
    from tallystream_aggregator.sums import Sum

log = logging.getLogger(__name__)

ALWAYS = ("lives", "instances", "retired")
_INTEGERS = WHOLE | {"ended", "silent"}
_RESERVED = RESERVED | {"instance"}


def point(row: Sum) -> Point:
    """Return the point of a sum. Its measurement is the metric's name, and `app` and `metric_type` are further tags.

    Each field always has the same type, as InfluxDB requires: counts are integers, all others are floats. Explicit
    buckets have a field for each bound, with the values up to there, and the suffix `.bucket`.
    """
    fields = _fields(row, sums.VALUES) | {name: int(getattr(row, name)) for name in ALWAYS}
    fields |= zip(map(repr, row.bounds), accumulate(row.counts), strict=False)  # the last one ends at infinity
    name = row.name + ".bucket" if row.type == "buckets" else row.name
    if row.overflow:
        fields["overflow"] = True
    tags = {free(name, RESERVED): value for name, value in row.tags.items()}
    return Point(name, {**tags, "app": row.app, "metric_type": row.type}, fields, row.ts, bytes(row.sketch))


def row_points(row: LifeRow) -> Iterator[Point]:
    """Yield a point for each metric of the life's newest snapshot, with the snapshot's append time.

    Explicit buckets have none, nor have sketches. The life is a field: as a tag, every restart would start new series.
    Only those of a final snapshot have the field `final`.
    """
    life: dict[str, Field] = {"life": row.life} if row.life else {}
    life |= {"final": True} if row.final else {}
    for place, metric in enumerate(row.metrics):
        # Metrics that the newest snapshot lacks were in an earlier one, which made their points.
        if place not in row.older and metric.type != "buckets":
            tags = {free(name, _RESERVED): value for name, value in metric.tags.items()}
            tags |= {"app": row.app, "metric_type": metric.type, "instance": row.instance}
            fields = _fields(metric, NAMES[metric.type]) | life
            yield Point(INSTANCE_PREFIX + metric.name, tags, fields, row.last_seen_ms)


def _fields(row: Sum | Metric, names: Iterable[str]) -> dict[str, Field]:
    values = ((name, getattr(row, name)) for name in names)
    return {name: int(value) if name in _INTEGERS else float(value) for name, value in values if value is not None}


_decode_event = json_decoder(Event)


def event_point(value: bytes) -> Point:
    """Return the point of an event. The same event always gives the same point.

    The detail is a tag, so that two limits that an instance reaches at the same time are two points.

    Raises:
        msgspec.DecodeError: the value is not a row of `metrics-events`.
    """
    row = _decode_event(value)
    about = row.instance or row.app
    fields: dict[str, Field] = {"text": f"{row.kind}: {about}" + (f", {row.detail}" if row.detail else "")}
    fields |= {"partition": row.partition, "offset": row.offset} | ({"life": row.life} if row.life else {})
    tags = {"kind": row.kind, "app": row.app, "instance": row.instance, "detail": row.detail}
    return Point(EVENTS, {name: value for name, value in tags.items() if value}, fields, row.ts)


LIFE = b'["life",'
"""The prefix of the keys of `metrics-table` that are shipped."""

_decode_life = json_decoder(LifeRow)


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
        sums.require_floats(*(getattr(metric, name) for name in NAMES[metric.type]))
    return row
