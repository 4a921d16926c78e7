"""Apply records to a table in steps, as the loop does, and a topic with one partition for tests of single rules."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from support.replayed import TopicRecord
from tallystream.ulid import new_ulid
from tallystream_aggregator import sums
from tallystream_aggregator.instances import INSTANCES
from tallystream_aggregator.stream.broker import Chunk, Place, RawRecord
from tallystream_aggregator.stream.compaction import StepRecords
from tallystream_aggregator.sums import Sum
from tallystream_aggregator.table import DeadLetter, Event, Record, State, Table, TableSettings
from tallystream_aggregator.table.combiners import ShardSum
from tallystream_aggregator.table.rows import TableRecord
from tallystream_aggregator.table.sum_tags import SumTags


class Published(NamedTuple):
    """What a step with rows publishes. `instances` are the sums with the numbers of instances, `totals` all others."""

    totals: list[Sum]
    dead: list[DeadLetter]
    events: list[Event]
    rows: list[TableRecord]
    shard_sums: list[ShardSum]
    instances: list[Sum]
    was_full: bool = False


def run(table: Table, records: Iterable[Record]) -> Published:
    """Run a step with these records: apply them, and return what it publishes. A table of several reads all of them."""
    apply(table, records)
    return publish(table)


def apply(table: Table, records: Iterable[Record]) -> None:
    """Apply records by partition, in offset order."""
    step = StepRecords(table)
    for chunk in chunks_of(records):
        step.add(chunk)
    step.end()


def publish(table: Table) -> Published:
    """Return what changed, with rows."""
    changes = table.outputs()
    totals = [total for total in changes.totals if total.type != INSTANCES]
    instances = [total for total in changes.totals if total.type == INSTANCES]
    return Published(
        totals, changes.dead, changes.events, table.rows(), changes.shard_sums, instances, changes.was_full
    )


def records_of(read: Iterable[TopicRecord], topic: str = "metrics") -> list[Record]:
    """Return records of a topic as the table gets them."""
    return [Record(topic, one.partition, one.offset, one.timestamp_ms, one.key, one.value) for one in read]


def chunks_of(records: Iterable[Record]) -> list[Chunk]:
    """Return records as chunks, one for each partition."""
    found: dict[Place, list[RawRecord]] = {}
    for one in sorted(records, key=lambda record: (record.topic, record.partition, record.offset)):
        rows = found.setdefault(Place(one.topic, one.partition), [])
        rows.append((one.offset, one.timestamp_ms, one.key, one.value))
    return [Chunk(place, rows, rows[-1][0] + 1) for place, rows in found.items()]


BEGIN_MS = 1_700_000_000_000
FIRST, SECOND = (new_ulid(BEGIN_MS) for _ in range(2))


def counter(count: int, name: str = "n", **more: Any) -> dict[str, Any]:
    """Return a counter in the form of the record."""
    return {"type": "counter", "name": name, "count": count, **more}


def gauge(value: Any, name: str = "g") -> dict[str, Any]:
    """Return a gauge in the form of the record."""
    return {"type": "gauge", "name": name, "value": value}


class Topic:
    """A topic with one partition and the table that reads it. `at` is the broker's clock, in ms after the beginning."""

    def __init__(self, settings: TableSettings | None = None, sum_tags: SumTags | None = None) -> None:
        self.table = Table(State(sum_tags=sum_tags or SumTags()), settings)
        self.offset = -1
        self.changes = Published([], [], [], [], [], [])
        self._waiting: list[Record] | None = None

    def append(self, key: bytes, value: bytes | None, at: int = 0) -> Topic:
        """Append one record and run a step with it."""
        self.offset += 1
        record = Record("metrics", 0, self.offset, BEGIN_MS + at, key, value)
        if self._waiting is None:
            self.changes = run(self.table, [record])
        else:
            self._waiting.append(record)
        return self

    @contextmanager
    def one_step(self) -> Iterator[None]:
        """Apply what is appended within the block in one step at its end."""
        self._waiting = records = list[Record]()
        yield
        self._waiting = None
        self.changes = run(self.table, records)

    def snapshot(self, *metrics: Any, at: int = 0, key: bytes = b"app-1", **header: Any) -> Topic:
        """Append a snapshot of the first life. `header` overrides fields of its header."""
        plain = {"v": 1, "app": "shop", "life": FIRST, "part": 0, "seq": 1, "ts": 0, "every_ms": 1000, "final": False}
        return self.append(key, json.dumps({**plain, **header, "metrics": metrics}).encode(), at)

    def short(self, value: int, at: int = 0) -> Topic:
        """Append a counter in the short form."""
        return self.append(b"script", json.dumps({"name": "n", "value": value}).encode(), at)

    def sum(self, name: str = "n") -> sums.Sum:
        """Return the sum that the last step published for the metric `name`, decoded from its bytes."""
        (found,) = [total for total in self.changes.totals if total.metric[1] == name]
        return sums.decode(found.value())

    def reasons(self) -> list[str]:
        """Return the reasons of the dead letters of the last step."""
        return [letter.reason for letter in self.changes.dead]

    def kinds(self) -> list[str]:
        """Return the kinds of the last step's events."""
        return [event.kind for event in self.changes.events]
