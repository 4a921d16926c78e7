"""Turns sums, events and the rows of single instances into points. docs/stores.md shows the schema."""

from __future__ import annotations

import logging
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from tallystream.decoding import json_decoder
from tallystream_aggregator import sums
from tallystream_aggregator.shipping.fence import Fence
from tallystream_aggregator.sinks.base import INSTANCE_PREFIX, RESERVED, Field, Point, free
from tallystream_aggregator.table.rows import LifeRow, ShardRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tallystream_aggregator.kafka.ledger import Epochs
    from tallystream_aggregator.kafka.topics import Topics
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


T = TypeVar("T")

LIFE, SHARD = b'["life",', b'["shard",'
"""The prefixes of the keys of `metrics-table` that are read. A shard's record has the epoch of the writer."""

_decode_life = json_decoder(LifeRow)
_decode_shard = json_decoder(ShardRow)


class Shipped(NamedTuple):
    """A record of one of the topics, as it was read."""

    topic: str
    offset: int
    key: bytes | None
    value: bytes | None
    partition: int = 0


def is_sum(measurement: str) -> bool:
    """Return whether a measurement of the store has sums, by its name."""
    return measurement != EVENTS and not measurement.startswith(INSTANCE_PREFIX)


class PointMapper:
    """Turns batches of records into points. `unreadable` counts records that can't be decoded.

    Sums and rows of replaced writers, and of epochs that no writer has taken, are skipped; `dropped` counts them.
    Events need no fence, as every aggregator writes the same events for the same records. `checkpoint` is the
    shipper's. The files of the fences are beside it.
    """

    def __init__(self, topics: Topics, checkpoint: Path, epochs: Epochs) -> None:
        self._topics = topics
        self._sums: Fence[sums.Sum] = Fence(checkpoint.with_name(checkpoint.name + ".epoch"), epochs)
        self._rows: dict[int, Fence[LifeRow | ShardRow]] = {}
        self._checkpoint, self._epochs = checkpoint, epochs
        self.unreadable = 0

    @property
    def dropped(self) -> int:
        """The number of records that were skipped because of their epoch."""
        return self._sums.dropped + sum(fence.dropped for fence in self._rows.values())

    def points(self, records: Iterable[Shipped]) -> list[Point]:
        """Return the points of a batch, in the order of offsets within each partition."""
        by_topic: dict[str, list[Shipped]] = {}
        for record in sorted(records, key=lambda record: (record.topic, record.partition, record.offset)):
            by_topic.setdefault(record.topic, []).append(record)
        summed = list(self._read(by_topic.get(self._topics.agg, ()), "a sum", lambda r: sums.decode(r.value or b"")))
        points = [point(row) for row in self._sums.admit(summed)]
        events = by_topic.get(self._topics.events, ())
        points += [event for _, event in self._read(events, "an event", lambda r: event_point(r.value or b""))]
        # A deletion means that a life was forgotten. Its points are in the store already.
        rows = [record for record in by_topic.get(self._topics.table, ()) if record.value is not None]
        for partition, of_partition in groupby(rows, key=lambda record: record.partition):
            for row in self._fence(partition).admit(list(self._read(of_partition, "a row", _row))):
                if isinstance(row, LifeRow):
                    points += row_points(row)
        return points

    def _fence(self, partition: int) -> Fence[LifeRow | ShardRow]:
        """Return the fence of a partition of `metrics-table`: the order of writers differs by partition."""
        if partition not in self._rows:
            path = self._checkpoint.with_name(f"{self._checkpoint.name}.rows-epoch-{partition}")
            self._rows[partition] = Fence(path, self._epochs)
        return self._rows[partition]

    def _read(self, records: Iterable[Shipped], what: str, decode: Callable[[Shipped], T]) -> Iterator[tuple[int, T]]:
        for record in records:
            try:
                yield record.offset, decode(record)
            except msgspec.DecodeError as error:
                self.unreadable += 1
                log.warning("%s, offset %d is not %s and is not shipped: %s", record.topic, record.offset, what, error)


def _row(record: Shipped) -> LifeRow | ShardRow:
    if (record.key or b"").startswith(SHARD):
        return _decode_shard(record.value or b"")
    row = _decode_life(record.value or b"")
    for metric in row.metrics:
        sums.require_floats(*(getattr(metric, name) for name in ROW_FLOATS))
    return row
