"""Reads from the ledger where the table began and where its batches ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tallystream_aggregator.kafka.ledger import QUERY
from tallystream_aggregator.verify.published import Batch, Ends, by_partition
from tallystream_aggregator.verify.tags import Tags

if TYPE_CHECKING:
    from tallystream_aggregator.kafka.ledger import LedgerRow


@dataclass(slots=True)
class LedgerBatches:
    """Collects the batches of the current table from the ledger's rows.

    `partial` is the row "opened" with which the current table began in the middle of the topic, None if it did not.
    `end` is the end of the last batch that `to` allows, `begin` that of the last batch that `since` allows.
    `batches` are the current table's batches that `to` allows, in order. `tags` maps the epoch of a writer → the tags
    that its sums have.
    """

    to: Limit | None = None
    since: Limit | None = None
    end: Ends | None = None
    begin: Ends | None = None
    partial: LedgerRow | None = None
    batches: list[Batch] = field(default_factory=list)
    tags: dict[int, Tags] = field(default_factory=dict)
    _forget_after: dict[int, int] = field(default_factory=dict)
    _opened: list[LedgerRow] = field(default_factory=list)
    _writer: LedgerRow | None = None
    _shards: int | None = None
    _has_begun: bool = False

    def add(self, row: LedgerRow) -> None:
        """Add one row of the ledger. Rows are added in the order in which they were written."""
        if row.query != QUERY:
            return
        if row.kind == "opened":
            self._opened.append(row)
            self.tags[row.epoch] = Tags(
                frozenset(row.drop_tags), None if row.keep_tags is None else frozenset(row.keep_tags)
            )
            self._writer = row
            self._forget_after[row.epoch] = row.forget_after_ms
            return
        begins, end = self._is_first(row), by_partition(row.end)
        if not begins and self.batches and _is_within(end, self.batches[-1].end):
            return  # written twice
        opened = self._begin() if begins else None
        if (begins or not self.batches) and self._writer is not None:
            self._shards = self._writer.shards or None
        # A late row of a replaced writer may come after the row "opened" of a rebuilt table.
        self._opened = [] if begins else [one for one in self._opened if one.epoch > row.epoch]
        self._has_begun = True
        if self.to is None or self.to.allows(row.ts, end):
            start = by_partition(row.start or (opened.start if opened is not None else {})) or None
            follows_gap = not row.start and row.batch > 0
            if follows_gap and not begins and self.batches:
                start = self.batches[-1].end
            batch = Batch(
                row.epoch,
                row.batch,
                start,
                end,
                begins,
                self._shards,
                follows_gap,
                self._forget_after.get(row.epoch, 0),
            )
            if batch.start is not None and self.batches and batch.start == self.batches[-1].end:
                batch = batch._replace(start=self.batches[-1].end)  # one object for both: there may be many
            self.end = end
            self.batches.append(batch)
        if self.since is not None and self.since.allows(row.ts, end):
            self.begin = end

    def tags_of(self, epoch: int | None) -> Tags:
        """Return the tags that the sums of a writer have, or those of the last writer for None.

        If the ledger has lost the writer's row, they are those of the writer before, or of the first one after it.
        """
        found = self.tags.get(-1 if epoch is None else epoch)
        if found is not None or not self.tags:
            return found or Tags()
        before = [known for known in self.tags if epoch is None or known < epoch]
        return self.tags[max(before) if before else min(self.tags)]

    def _is_first(self, row: LedgerRow) -> bool:
        """Return whether a row is the first one of a checkpoint.

        It has no start, and comes after a row "opened" with the start of the checkpoint. A row without a start may also
        be one that was written twice, or follow a gap of the ledger: Spark had deleted the offsets before it.
        """
        opened = any(one.epoch <= row.epoch and (one.start or one.partial) for one in self._opened)
        return not row.start and (opened or not self._has_begun)

    def _begin(self) -> LedgerRow | None:
        """Return the row "opened" that has the start of a new checkpoint, None if there is none.

        Several writers may have opened the checkpoint before one of them finished a batch. `batches` is cleared unless
        the checkpoint continues a rebuilt table.
        """
        opened = next((one for one in reversed(self._opened) if one.start or one.partial), None)
        if opened is None or opened.partial:
            self.partial = opened
            self.batches.clear()
        elif not any(by_partition(opened.start).values()):
            self.partial = None
            self.batches.clear()
        # Otherwise the checkpoint has a rebuilt table, which includes all batches of the table before it.
        return opened


def _is_within(ends: Ends, others: Ends) -> bool:
    return all(end <= others.get(partition, 0) for partition, end in ends.items())


@dataclass(frozen=True, slots=True)
class Limit:
    """The end of a period: batches with a time up to `ts_ms`, or, if `ends` is given, records below these offsets."""

    ts_ms: int
    ends: Ends | None = None

    def allows(self, ts_ms: int, ends: Ends) -> bool:
        """Return whether a batch with this time and these ends is within the limit."""
        if self.ends is None:
            return ts_ms <= self.ts_ms
        return all(end <= self.ends.get(partition, 0) for partition, end in ends.items())
