"""The latest sums: as a reader of `metrics-agg` gets them, and as the store has them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from tallystream_aggregator import sums
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.times import DAY_MS
from tallystream_cli.demo.app_metrics import PROCESSED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream_aggregator.sinks.base import PointReader

Number = int | float
Key = tuple[str, str, str, tuple[tuple[str, str], ...]]
"""(app, name, type, sorted tags)"""
Values = dict[str, Number]

FIELDS = {
    "counter": ("count",),
    "meter": ("count",),
    "histogram": ("count", "sum", "min", "max"),
    "timer": ("count", "sum", "min", "max"),
    "position": ("start", "position"),
}
"""The fields of a sum that do not depend on the time of reading, by metric type: no gauges, rates or quantiles."""


class Decrease(NamedTuple):
    """The values of a counter before and after it decreased."""

    before: int
    after: int


class LatestSums:
    """The latest row of each key. `decreases` are those of `PROCESSED`."""

    def __init__(self) -> None:
        self.rows: dict[Key, sums.Sum] = {}
        self.decreases: list[Decrease] = []

    def add(self, value: bytes) -> None:
        """Add a row.

        Raises:
            msgspec.DecodeError: it is not a sum.
        """
        row = sums.decode(value)
        key = (row.app, row.name, row.type, tuple(sorted(row.tags.items())))
        previous = self.rows.get(key)
        if previous is not None and row.name == PROCESSED and (row.count or 0) < (previous.count or 0):
            self.decreases.append(Decrease(previous.count or 0, row.count or 0))
        self.rows[key] = row

    def count(self, name: str = PROCESSED) -> int:
        """Return a counter's sum over all tags, 0 before the first row."""
        return sum(row.count or 0 for key, row in list(self.rows.items()) if key[1:3] == (name, "counter"))

    def values(self) -> dict[Key, Values]:
        """Return the fields of every metric that do not depend on the time of reading."""
        return {key: _values(row, FIELDS[key[2]]) for key, row in self.rows.items() if key[2] in FIELDS}


def _values(row: sums.Sum, fields: tuple[str, ...]) -> Values:
    return {name: value for name in fields if (value := getattr(row, name)) is not None}


def positions_covered(values: Mapping[Key, Values]) -> int:
    """Return the number of different offsets that the positions among the sums cover."""
    return sum(int(row["position"]) - int(row["start"]) for key, row in values.items() if key[2] == "position")


class SumsReader:
    """Reads `metrics-agg` in a thread. `position` is the next offset to read, after the markers of transactions.

    If the thread fails, `error` is its exception.
    """

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self.sums = LatestSums()
        self.position = 0
        self.error: Exception | None = None
        self._servers = bootstrap_servers
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-sums", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        consumer = clients.consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": clients.READING,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        try:
            consumer.assign([TopicPartition(self._topic, 0, 0)])
            while not self._stop.is_set():
                for message in consumer.consume(1000, timeout=0.1):
                    self._add(message)
        except Exception as error:  # noqa: BLE001 (the main thread raises it)
            self.error = error
        finally:
            consumer.close()

    def _add(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self.sums.add(message.value() or b"")
            self.position = (message.offset() or 0) + 1
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (it has no public name)
            self.position = message.offset() or 0
        else:
            raise KafkaException(error)


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
