"""Compact the records of a partition as catch-up does, and apply them to a table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from support.schedules import BEGIN_MS, TopicRecord
from tallystream_aggregator.table import Changes, State, Table, TableSettings
from tallystream_aggregator.table.compaction import Compactor
from tallystream_aggregator.table.decode import Record
from tallystream_aggregator.table.table import run_expanded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tallystream_aggregator.table.compaction import Span

SETTINGS = TableSettings()
LIFE = "01HF7YAT00AAAAAAAAAAAAAAAA"
"""A life whose ULID has the time BEGIN_MS."""


class Topic:
    """Builds the records of one partition."""

    def __init__(self) -> None:
        self.written: list[TopicRecord] = []

    def add(self, value: bytes | str | None, *, key: bytes = b"app-1", at: int | None = None) -> Topic:
        """Append a value. Its append time is a second after that of the record before, unless `at` is given."""
        offset = len(self.written)
        at = BEGIN_MS + 1_000 * offset if at is None else at
        self.written.append(TopicRecord(key, value.encode() if isinstance(value, str) else value, at, 0, offset))
        return self

    def counts(self, *values: int, name: str = "orders", key: bytes = b"app-1") -> Topic:
        """Append a counter's values in the short form."""
        for value in values:
            self.add(json.dumps({"name": name, "value": value}, separators=(",", ":")), key=key)
        return self

    def snapshots(self, *seqs: int, key: bytes = b"app-1", **changed: Any) -> Topic:
        """Append snapshots with one counter, whose count is the seq. `changed` overrides fields of the header."""
        for seq in seqs:
            self.add(snapshot(seq, **changed), key=key)
        return self

    def kept(self, settings: TableSettings = SETTINGS) -> list[int]:
        """Return the offsets that compaction keeps."""
        return [record.offset for record in self.records(settings)]

    def records(self, settings: TableSettings = SETTINGS) -> list[Record]:
        """Return the records that compaction keeps."""
        return compact(table_records(self.written), settings)


def snapshot(seq: int, *, metrics: list[dict[str, Any]] | None = None, **changed: Any) -> str:
    """Return a snapshot. By default it has one counter, whose count is the seq."""
    header = {"v": 1, "app": "shop", "life": LIFE, "part": 0, "seq": seq, "prev": BEGIN_MS, "ts": BEGIN_MS}
    header |= {"every_ms": 1000, "final": False, **changed}
    return json.dumps(header | {"metrics": [counter(seq)] if metrics is None else metrics})


def counter(count: int, name: str = "orders", **tags: str) -> dict[str, Any]:
    """Return a counter as a record has it."""
    return {"type": "counter", "name": name, "tags": tags, "count": count}


def table_records(records: Iterable[TopicRecord]) -> list[Record]:
    """Return records in the form that the table reads."""
    return [Record("metrics", r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in records]


def compact(
    records: Sequence[Record], settings: TableSettings, *, shards: int = 1, segment: int = 10**9
) -> list[Record]:
    """Return the records that compaction keeps, in offset order.

    Each partition is compacted by itself, in segments of this many records.
    """
    kept: list[Record] = []
    for partition in {record.partition for record in records}:
        mine = sorted((r for r in records if r.partition == partition), key=lambda record: record.offset)
        for begin in range(0, len(mine), segment):
            compactor = Compactor("metrics", partition, settings, shards)
            rows = ((r.offset, r.timestamp_ms, r.key, r.value) for r in mine[begin : begin + segment])
            kept += compactor.add(rows)
            kept += compactor.end()
    return sorted(kept, key=lambda record: (record.partition, record.offset))


def span_reader(records: Sequence[Record]) -> Callable[[Span], list[Record]]:
    """Return a function that reads a span of a topic with these records."""

    def read(span: Span) -> list[Record]:
        mine = (record for record in records if record.partition == span.partition)
        return sorted((r for r in mine if span.first <= r.offset <= span.last), key=lambda record: record.offset)

    return read


def apply_or_expand(records: list[Record], topic: Topic) -> tuple[Changes, Table]:
    """Apply records of the topic to a new table as one batch. If the table asks for it, expand them first."""
    table = Table(State(), SETTINGS)

    def run(records: Sequence[Record]) -> Changes:
        nonlocal table
        table = Table(State(), SETTINGS)
        table.apply(sorted(records, key=lambda record: record.offset))
        return table.changes()

    return run_expanded(records, run, span_reader(table_records(topic.written))), table
