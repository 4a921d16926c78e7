"""Records of the topics that are shipped, to points: sums, events, and the rows of single instances."""

from __future__ import annotations

import logging
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from tallystream.decoding import json_decoder
from tallystream_aggregator import sums
from tallystream_aggregator.shipping.events import MEASUREMENT as EVENTS
from tallystream_aggregator.shipping.events import event_point
from tallystream_aggregator.shipping.fence import Fence
from tallystream_aggregator.shipping.points import point
from tallystream_aggregator.shipping.rows import PREFIX, row_points
from tallystream_aggregator.table.rows import LifeRow, ShardRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tallystream_aggregator.kafka.epochs import Epochs
    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.sinks.base import Point

T = TypeVar("T")

log = logging.getLogger(__name__)

LIFE, SHARD = b'["life",', b'["shard",'
"""How the keys begin of those records of `metrics-table` that are looked at: a shard's say who writes."""

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
    """Tell whether a measurement of the store is one of sums, by its name."""
    return measurement != EVENTS and not measurement.startswith(PREFIX)


class Translator:
    """Translates batches. `unreadable` counts the records that were not what their topic has.

    A record of a writer that was replaced, or of an epoch that no writer has taken, is left out, of sums and of rows;
    `dropped` counts them. Events need no fence: every aggregator says the same of the same records. `checkpoint` is the
    shipper's: the fences lie beside it.
    """

    def __init__(self, topics: Topics, checkpoint: Path, epochs: Epochs) -> None:
        self._topics = topics
        self._sums: Fence[sums.Sum] = Fence(checkpoint.with_name(checkpoint.name + ".epoch"), epochs)
        self._rows: dict[int, Fence[LifeRow | ShardRow]] = {}
        self._checkpoint, self._epochs = checkpoint, epochs
        self.unreadable = 0

    @property
    def dropped(self) -> int:
        """How many records were left out because of their epoch."""
        return self._sums.dropped + sum(fence.dropped for fence in self._rows.values())

    def points(self, records: Iterable[Shipped]) -> list[Point]:
        """Return the points of a batch, in the order of offsets within each partition."""
        by_topic: dict[str, list[Shipped]] = {}
        for record in sorted(records, key=lambda record: (record.topic, record.partition, record.offset)):
            by_topic.setdefault(record.topic, []).append(record)
        summed = list(self._read(by_topic.get(self._topics.agg, ()), "a sum", lambda r: sums.decode(r.value or b"")))
        points = [point(row) for row in self._sums.admit(summed)]
        events = by_topic.get(self._topics.events, ())
        points += [made for _, made in self._read(events, "an event", lambda r: event_point(r.value or b""))]
        # A deletion says that a life was forgotten: what it counted is in the store, under its own times.
        rows = [record for record in by_topic.get(self._topics.table, ()) if record.value is not None]
        for partition, of_partition in groupby(rows, key=lambda record: record.partition):
            for row in self._fence(partition).admit(list(self._read(of_partition, "a row", _row))):
                if isinstance(row, LifeRow):
                    points += row_points(row)
        return points

    def _fence(self, partition: int) -> Fence[LifeRow | ShardRow]:
        """Return the fence of a partition of `metrics-table`: offsets, and so the order of writers, are its own."""
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
    decode = _decode_shard if (record.key or b"").startswith(SHARD) else _decode_life
    return decode(record.value or b"")
