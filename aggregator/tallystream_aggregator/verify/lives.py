"""What the replay remembers: lives, and the rows of a life."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallystream_aggregator.verify.decode import Identity
    from tallystream_aggregator.verify.sketches import Bins


FORGET_AFTER_MS = 7 * 86_400_000
"""The aggregator forgets no life of which it heard less long ago, whatever it was told."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The rules' numbers, which can't be chosen but in tests, except `max_app_metrics`. Times in ms, sizes in bytes."""

    short_form_every_ms: int = 60_000
    max_record_bytes: int = 1_048_576
    max_metrics: int = 10_000
    max_app_metrics: int = 1_000_000
    """All apps together: four times as many. Of names and tags: 256 bytes for each metric."""


@dataclass(slots=True)
class Row:
    """One metric of one life: its newest numbers, and the part and seq of the snapshot that had them."""

    numbers: dict[str, Any]
    bins: Bins | None
    part: int
    seq: int


@dataclass(slots=True, eq=False)
class Life:
    """One life. `last_seen_ms` is the clock at its last record.

    `spoke_ms` is its shard's clock at its last record that was not stale, in batch `spoke_in`. `silent` says whether it
    was found silent since, in an earlier checkpoint: None where that is not known.

    `ahead_ms` is the time of its ULID, which may be ahead of its first record; None in the short form, which is never
    forgotten. `perhaps` says that the sums may have these rows or not: whether they do depends on whether the life was
    forgotten before a tombstone or a forget record.
    """

    app: str
    instance: str
    partition: str
    every_ms: int
    last_seen_ms: int
    spoke_ms: int
    ahead_ms: int | None
    final: bool = False
    spoke_in: int = 0
    silent: bool | None = False
    perhaps: bool = False
    seqs: dict[int, int] = field(default_factory=dict)
    rows: dict[Identity, Row] = field(default_factory=dict)

    def may_be_forgotten(self, clock_ms: int) -> bool:
        """Tell whether nothing was heard of it for so long that the aggregator may have forgotten it (rule 3)."""
        return self.ahead_ms is not None and clock_ms - max(self.last_seen_ms, self.ahead_ms) >= FORGET_AFTER_MS

    @property
    def deadline_ms(self) -> int:
        """The partition's time at which it is silent: three intervals after it spoke (rule 5)."""
        return self.spoke_ms + 3 * self.every_ms

    def newest(self, row: Row) -> bool:
        """Tell whether a row is of the newest snapshot of its part (rule 9)."""
        return self.seqs.get(row.part, 0) == row.seq
