"""Compact records as catch-up does: each partition by itself, in segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.table.compaction import Compactor
from tallystream_aggregator.table.decode import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from support.schedules import TopicRecord
    from tallystream_aggregator.table.compaction import Span
    from tallystream_aggregator.table.limits import TableSettings


def table_records(records: Iterable[TopicRecord]) -> list[Record]:
    """Return records in the form that the table reads."""
    return [Record("metrics", r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in records]


def compact(
    records: Sequence[Record], settings: TableSettings, *, shards: int = 1, segment: int = 10**9
) -> list[Record]:
    """Return the records that compaction keeps, in offset order. A segment has this many records of a partition."""
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
