"""Reads from the ledger where the table began, its settings since then, and where a period begins."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tallystream_aggregator.verify.advance import Change
from tallystream_aggregator.verify.lives import Settings
from tallystream_aggregator.verify.published import Ends, by_partition
from tallystream_aggregator.verify.tags import Tags

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.kafka.ledger import LedgerRow


class Ledger:
    """What the rows of the ledger say of the table that began last. They are given in their order.

    `start` is where it began, None if the ledger has lost that. `changes` are those of its settings: a driver's are
    those of the table after the last epoch that an earlier one has written. `settings` are the newest ones. `tags` has
    all that the sums have had. `begin` is where the last epoch began that had begun at `since_ms`.
    """

    def __init__(self, rows: Iterable[LedgerRow], since_ms: int = 0) -> None:
        self.start: Ends | None = None
        self.changes: list[Change] = []
        self.tags: set[Tags] = set()
        self.begin: Ends = {}
        otlp: set[str] = set()
        max_table_bytes = 0
        at: Ends = {}
        for row in rows:
            otlp |= set(row.otlp)
            if row.kind == "epoch":
                if row.ts <= since_ms:
                    self.begin = at
                at = by_partition(row.end)
                continue
            self.tags.add(Tags(frozenset(row.drop_tags), None if row.keep_tags is None else frozenset(row.keep_tags)))
            max_table_bytes = row.max_table_bytes
            if row.start:
                self.start = at = by_partition(row.start)
                self.changes.clear()
            elif row.end:
                at = by_partition(row.end)
            if row.shards:
                self.changes.append(Change(at, row.shards, row.forget_after_ms))
        self.settings = Settings(otlp_topics=tuple(sorted(otlp)))
        if max_table_bytes:
            self.settings = replace(self.settings, max_table_bytes=max_table_bytes)
