"""The log of one partition, as Kafka keeps it: records, and the markers that end transactions in it.

Offsets only rise, and have gaps after a compaction. Records of a transaction are in the log before it ends. A reader
with `read_uncommitted` sees them at once. A reader with `read_committed` stops at the first record of an open
transaction (the last stable offset), and skips the records of aborted ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from tallystream_aggregator.stream.broker import Bounds

Outcome = Literal["commit", "abort"]


class Entry(NamedTuple):
    """A record, or a marker. `transaction` is the number of its transaction, or None for a record without one.

    `epoch` is that of the leader that appended it.
    """

    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    transaction: int | None = None
    marker: Outcome | None = None
    epoch: int = 0


class Partition:
    """The log of one partition."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.start = 0
        """The first offset that was not deleted."""
        self.end = 0
        """The offset of the next entry: the high watermark, as there is one replica."""
        self.open: dict[int, int] = {}
        """The transactions that are open here, by number, and the offset of the first record of each."""
        self.epoch = 0
        """How often another leader was elected."""
        self.outcomes: dict[int, Outcome] = {}
        """How the other transactions ended here. It survives the compaction of their markers."""
        self._offsets: list[int] = []

    @property
    def stable(self) -> int:
        """The last stable offset: no record before it belongs to an open transaction."""
        return min(self.open.values(), default=self.end)

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.start, self.stable, self.end)

    def append(self, time_ms: int, key: bytes | None, value: bytes | None, transaction: int | None = None) -> int:
        if transaction is not None:
            self.open.setdefault(transaction, self.end)
        return self._add(Entry(self.end, time_ms, key, value, transaction))

    def mark(self, time_ms: int, transaction: int, outcome: Outcome, hanging: Iterable[int] = ()) -> None:
        """End a transaction in this partition, and those of its ID that hang here. The marker takes an offset."""
        self._add(Entry(self.end, time_ms, None, None, transaction, outcome))
        for number in (transaction, *hanging):
            self.open.pop(number, None)
            self.outcomes[number] = outcome

    def _add(self, entry: Entry) -> int:
        self.entries.append(entry._replace(epoch=self.epoch))
        self._offsets.append(entry.offset)
        self.end += 1
        return entry.offset

    def between(self, first: int, end: int) -> Iterator[Entry]:
        """Yield the entries, markers too, with first <= offset < end."""
        yield from self.entries[bisect_left(self._offsets, first) : bisect_left(self._offsets, end)]

    def is_committed(self, entry: Entry) -> bool:
        """Tell whether the entry is a record without a transaction, or of one that is committed here."""
        if entry.marker is not None:
            return False
        return entry.transaction is None or self.outcomes.get(entry.transaction) == "commit"

    def committed(self, first: int, end: int) -> list[Entry]:
        """Return the records that a reader with `read_committed` sees now with first <= offset < end."""
        return [entry for entry in self.between(first, min(end, self.stable)) if self.is_committed(entry)]

    def delete_before(self, offset: int) -> None:
        """Delete the records before an offset, as retention and Kafka's delete-records do, at most all stable ones."""
        self.start = max(self.start, min(offset, self.stable))
        self._keep([entry for entry in self.entries if entry.offset >= self.start])

    def compact(self, end: int, *, markers: bool, tombstones: bool) -> None:
        """Keep only the newest committed record of each key before `end`; aborted records go.

        Nothing after the last stable offset is touched. With `markers`, the markers of transactions without records go,
        too; with `tombstones`, so do null values.
        """
        end = min(end, self.stable)
        cleaned = [entry for entry in self.entries if entry.offset < end]
        newest = {entry.key: entry.offset for entry in cleaned if self.is_committed(entry)}
        kept = [entry for entry in cleaned if self.is_committed(entry) and newest[entry.key] == entry.offset]
        if tombstones:
            kept = [entry for entry in kept if entry.value is not None]
        used = {entry.transaction for entry in kept}
        kept += [e for e in cleaned if e.marker is not None and not (markers and e.transaction not in used)]
        kept.sort(key=lambda entry: entry.offset)
        self._keep(kept + [entry for entry in self.entries if entry.offset >= end])

    def truncate(self, end: int) -> None:
        """Lose everything from an offset on, as an unclean election does.

        A transaction whose marker is lost is open again. The coordinator believes that it has ended: it hangs.
        """
        self.epoch += 1
        self._keep([entry for entry in self.entries if entry.offset < end])
        self.start, self.end = min(self.start, end), min(self.end, end)
        self.open = {number: first for number, first in self.open.items() if first < end}
        ended = {entry.transaction for entry in self.entries if entry.marker is not None}
        for entry in self.entries:
            number = entry.transaction
            if number is not None and entry.marker is None and number not in ended:
                self.outcomes.pop(number, None)
                self.open.setdefault(number, entry.offset)

    def _keep(self, entries: list[Entry]) -> None:
        self.entries = entries
        self._offsets = [entry.offset for entry in entries]
