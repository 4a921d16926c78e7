"""What the ledger says: where the table began, and where its batches ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tallystream.aggregator.ledger import QUERY
from tallystream.aggregator.verify.published import Ends, flat

if TYPE_CHECKING:
    from tallystream.aggregator.ledger import LedgerRow


@dataclass(slots=True)
class Books:
    """Reads the rows of one query in order, and remembers the last of each kind.

    `partial` is the row that says that today's table began in the middle of the topic, None where it did not. `end` is
    the end of the last batch, of those that `to` allows; `begin` that of the last one that `since` allows.
    """

    to: Limit | None = None
    since: Limit | None = None
    end: Ends | None = None
    begin: Ends | None = None
    partial: LedgerRow | None = None
    _opened: list[LedgerRow] = field(default_factory=list)

    def take(self, row: LedgerRow) -> None:
        """Take one row of the ledger, in the order in which they were written."""
        if row.query != QUERY:
            return
        if row.kind == "opened":
            self._opened.append(row)
            return
        if not row.start:  # the first batch of a checkpoint
            self._begin()
        self._opened.clear()
        end = flat(row.end)
        if self.to is None or self.to.allows(row.ts, end):
            self.end = end
        if self.since is not None and self.since.allows(row.ts, end):
            self.begin = end

    def _begin(self) -> None:
        """Find where the table of a new checkpoint began: the writers that opened it may have died before a batch."""
        opened = next((one for one in reversed(self._opened) if one.start or one.partial), None)
        if opened is None or opened.partial:
            self.partial = opened
        elif not any(flat(opened.start).values()):
            self.partial = None
        # Else it goes on in the middle with all that was there: rebuilt, so it began where the table before it did.


@dataclass(frozen=True, slots=True)
class Limit:
    """A moment: of the ledger (batches finished by `ts_ms`), or of the records, where `ends` has their offsets then."""

    ts_ms: int
    ends: Ends | None = None

    def allows(self, ts_ms: int, ends: Ends) -> bool:
        """Tell whether a batch of this time and with these ends had finished, or had read no record of later."""
        if self.ends is None:
            return ts_ms <= self.ts_ms
        return all(end <= self.ends.get(p, 0) for p, end in ends.items())
