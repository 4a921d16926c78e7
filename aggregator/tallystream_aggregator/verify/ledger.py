"""Reads the settings of the table from the ledger: the newest ones, and where they have changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.verify.advance import Change
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.published import Ends, by_partition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.kafka.ledger import LedgerRow
    from tallystream_aggregator.verify.tags import Tags


def read(rows: Iterable[LedgerRow], tags: Tags) -> tuple[Settings, list[Change]]:
    """Return the newest settings of the table that began last, and their changes. The rows are given in their order.

    A driver's are those of the table after the last epoch that an earlier one has written. The sums have these `tags`.
    """
    changes: list[Change] = []
    otlp: set[str] = set()
    max_table_bytes = Settings().max_table_bytes
    at: Ends = {}
    for row in rows:
        otlp |= set(row.otlp)
        if row.kind == "epoch":
            at = by_partition(row.end)
            continue
        max_table_bytes = row.max_table_bytes or max_table_bytes
        if row.start:
            at = by_partition(row.start)
            changes.clear()
        elif row.end:
            at = by_partition(row.end)
        if row.shards:
            changes.append(Change(at, row.shards, row.forget_after_ms))
    return Settings(max_table_bytes=max_table_bytes, otlp_topics=tuple(sorted(otlp)), tags=tags), changes
