"""Reads from the ledger where the table began, its settings since then, and where the epochs of a period ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream_aggregator.verify.advance import Change
from tallystream_aggregator.verify.published import Ends, by_partition
from tallystream_aggregator.verify.tags import Tags

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.kafka.ledger import LedgerRow


@dataclass(frozen=True, slots=True)
class Limit:
    """The end of a period: epochs with a time up to `ts_ms`, or, if `ends` is given, records below these offsets."""

    ts_ms: int
    ends: Ends | None = None

    def allows(self, ts_ms: int, ends: Ends) -> bool:
        """Return whether an epoch with this time and these ends is within the limit."""
        if self.ends is None:
            return ts_ms <= self.ts_ms
        return all(end <= self.ends.get(partition, 0) for partition, end in ends.items())


class Ledger:
    """What the rows of the ledger say of the table that began last. They are given in their order.

    `opened` is the row of the driver that began it, None if the ledger has lost it. `changes` are those of its
    settings: a driver's are those of the table after the last epoch that an earlier one has written. `tags` has all
    that the sums have had. `end` is the end of the last epoch that `to` allows, whose sums have the tags `end_tags`,
    and `begin` that of the last epoch that `since` allows.
    """

    def __init__(self, rows: Iterable[LedgerRow], *, to: Limit | None = None, since: Limit | None = None) -> None:
        self.opened: LedgerRow | None = None
        self.changes: list[Change] = []
        self.tags: set[Tags] = set()
        self.end: Ends | None = None
        self.end_tags = tags = Tags()
        self.begin: Ends | None = None
        at: Ends = {}
        for row in rows:
            if row.kind == "opened":
                tags = Tags(frozenset(row.drop_tags), None if row.keep_tags is None else frozenset(row.keep_tags))
                self.tags.add(tags)
                if row.start or row.partial:
                    self.opened, at = row, by_partition(row.start)
                    self.changes.clear()
                elif row.end:
                    at = by_partition(row.end)
                if row.shards:
                    self.changes.append(Change(at, row.shards, row.forget_after_ms))
                continue
            at = by_partition(row.end)
            if to is not None and to.allows(row.ts, at):
                self.end, self.end_tags = at, tags
            if since is not None and since.allows(row.ts, at):
                self.begin = at
