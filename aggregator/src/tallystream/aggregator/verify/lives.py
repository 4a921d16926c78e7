"""What the replay remembers: lives, and the rows of a life."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallystream.aggregator.verify.reading import Identity
    from tallystream.aggregator.verify.sketches import Bins


@dataclass(frozen=True, slots=True)
class Settings:
    """The rules' numbers: those with which the aggregator was run. Times in ms, sizes in bytes."""

    retire_after_ms: int = 24 * 3_600_000
    short_form_every_ms: int = 60_000
    max_record_bytes: int = 1_048_576
    max_metrics: int = 10_000


@dataclass(slots=True)
class Row:
    """One metric of one life: its newest numbers, and the part and seq of the snapshot that had them."""

    numbers: dict[str, Any]
    bins: Bins | None
    part: int
    seq: int


@dataclass(slots=True, eq=False)
class Life:
    """One life. `heard_ms` is the clock at its last record, `spoke_ms` at its last that was not stale.

    `ahead_ms` is the time of its ULID, which may be ahead of its first record; None in the short form.
    """

    app: str
    instance: str
    partition: str
    every_ms: int
    heard_ms: int
    spoke_ms: int
    ahead_ms: int | None
    final: bool = False
    seqs: dict[int, int] = field(default_factory=dict)
    rows: dict[Identity, Row] = field(default_factory=dict)

    def retires_at(self, retire_after_ms: int) -> int | None:
        """Return the moment at which it retires, None for the short form, which never does (rule 3)."""
        return None if self.ahead_ms is None else max(self.heard_ms, self.ahead_ms) + retire_after_ms

    def living(self, clock_ms: int) -> bool:
        """Tell whether fewer than three intervals have passed since it spoke, and it has not said final (rule 5)."""
        return not self.final and clock_ms - self.spoke_ms < 3 * self.every_ms

    def newest(self, row: Row) -> bool:
        """Tell whether a row is of the newest snapshot of its part (rule 9)."""
        return self.seqs.get(row.part, 0) == row.seq
