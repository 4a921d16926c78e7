"""The latest sums: as a reader of `metrics-agg` gets them, and as the store has them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tallystream_aggregator import sums
from tallystream_aggregator.kafka.clients import READING
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.shipping.shipper import MAX_RECORDS, POLL_S
from tallystream_aggregator.shipping.tail import Tail
from tallystream_aggregator.stream import broker as stream
from tallystream_aggregator.stream.kafka.broker import KafkaBroker
from tallystream_aggregator.times import DAY_MS
from tallystream_cli.demo.app import PROCESSED
from tallystream_dashboards.data.compare import Counted, Place, Range
from tallystream_dashboards.data.sides import positions_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream_aggregator.sinks.base import PointReader

Key = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""(app, name, type, sorted tags)"""
Values = dict[str, int | float]

FIELDS = {
    "counter": ("count",),
    "histogram": ("count", "sum", "min", "max"),
    "timer": ("count", "sum", "min", "max"),
    "position": ("start", "position"),
}
"""The fields of a sum that do not depend on the time of reading, by metric type: no gauges, rates or quantiles."""


class SumsReader:
    """Reads `metrics-agg` from its beginning, up to its end with each `refresh`.

    `rows` has the latest row of each key, and `decreases` counts those in which `PROCESSED` was lower than before.
    """

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.rows: dict[Key, sums.Sum] = {}
        self.decreases = 0
        broker = KafkaBroker({"bootstrap.servers": bootstrap_servers}, Selection(topic), READING)
        self._tail = Tail(broker, lambda: [stream.Place(topic, 0)])

    def refresh(self) -> None:
        """Read what is committed by now.

        Raises:
            BrokerError: the broker did not answer in time.
        """
        ends = {place: found.stable for place, found in self._tail.ask().items()}
        while any(self._tail.positions[place] < end for place, end in ends.items()):
            records = self._tail.read(MAX_RECORDS, POLL_S)
            for record in records:
                self.add(sums.decode(record.value or b""))
            if not records:
                self._tail.ask()  # else an outage would be waited out

    def add(self, row: sums.Sum) -> None:
        """Take a row as the latest one of its key."""
        key = (row.app, row.name, row.type, tuple(sorted(row.tags.items())))
        before = self.rows.get(key)
        if before is not None and row.name == PROCESSED and (row.count or 0) < (before.count or 0):
            self.decreases += 1
        self.rows[key] = row

    def count(self) -> int:
        """Return the sum of `PROCESSED` over all tags, 0 before the first row."""
        return sum(row.count or 0 for key, row in self.rows.items() if key[1:3] == (PROCESSED, "counter"))

    def values(self) -> dict[Key, Values]:
        """Return the fields of every metric that do not depend on the time of reading."""
        return {
            key: {name: value for name in FIELDS[key[2]] if (value := getattr(row, name)) is not None}
            for key, row in self.rows.items()
            if key[2] in FIELDS
        }

    def close(self) -> None:
        """Release the connection."""
        self._tail.close()


def counted(values: Mapping[Key, Values], name: str) -> Counted:
    """Return what a counter has counted, and between which offsets."""
    ranges = {
        Place(tags["topic"], tags["partition"]): Range(int(row["start"]), int(row["position"]))
        for key, row in values.items()
        if key[1] == positions_of(name) and (tags := dict(key[3]))
    }
    return Counted(int(sum(row["count"] for key, row in values.items() if key[1] == name)), ranges)


def read_points(store: PointReader, keys: Iterable[Key]) -> dict[Key, Values]:
    """Return the fields of the latest point of each key in the store; a key without a point is left out.

    Raises:
        SinkUnavailableError: the store can't be read.
    """
    now = int(time.time() * 1000)
    values: dict[Key, Values] = {}
    for key in keys:
        app, name, type_, tags = key
        labels = {**dict(tags), "app": app, "metric_type": type_}
        for series in store.read(name, FIELDS[type_], start_ms=now - DAY_MS, end_ms=now + DAY_MS, tags=labels):
            value = series.values[-1]
            if dict(series.tags) == labels and isinstance(value, int | float):
                values.setdefault(key, {})[series.field] = value
    return values
