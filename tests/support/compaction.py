"""Compact records as catch-up does: by partition, in segments, each by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.table.compaction import Compactor
from tallystream_aggregator.table.decode import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from support.schedules import Written
    from tallystream_aggregator.table.compaction import Span
    from tallystream_aggregator.table.limits import TableSettings


def records_of(batch: Sequence[Written]) -> list[Record]:
    """Return records as the table takes them."""
    return [Record("metrics", r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in batch]


def compacted(records: Sequence[Record], settings: TableSettings, *, segment: int = 10**9) -> list[Record]:
    """Return what compaction keeps, in offset order; of each partition `segment` records are compacted at a time."""
    kept: list[Record] = []
    for partition in {record.partition for record in records}:
        mine = sorted((r for r in records if r.partition == partition), key=lambda record: record.offset)
        for begin in range(0, len(mine), segment):
            compactor = Compactor("metrics", partition, settings)
            rows = ((r.offset, r.timestamp_ms, r.key, r.value) for r in mine[begin : begin + segment])
            kept += compactor.add(rows)
            kept += compactor.end()
    return sorted(kept, key=lambda record: (record.partition, record.offset))


def spans_of(records: Sequence[Record]) -> Callable[[Span], list[Record]]:
    """Return what reads a span of the topic again."""

    def read(span: Span) -> list[Record]:
        mine = (record for record in records if record.partition == span.partition)
        return sorted((r for r in mine if span.first <= r.offset <= span.last), key=lambda record: record.offset)

    return read
