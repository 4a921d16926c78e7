"""The state of the replay: lives and their rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tallystream_aggregator.verify.decode import Identity
    from tallystream_aggregator.verify.sketches import Bins


FORGET_AFTER_MS = 7 * 86_400_000
"""The least time, in ms, after which the aggregator forgets a life, with any options."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The numbers in the rules: times in ms, sizes in bytes. Only `max_app_metrics` and `otlp_topics` are options."""

    short_form_every_ms: int = 60_000
    max_record_bytes: int = 1_048_576
    max_metrics: int = 10_000
    max_app_metrics: int = 1_000_000
    """All apps together may have four times as many. Names and tags may have 256 bytes for each metric."""
    otlp_topics: tuple[str, ...] = ()
    """The topics of OTLP metrics."""


@dataclass(slots=True)
class Row:
    """One metric of one life: its newest numbers, and the part and seq of their snapshot."""

    numbers: dict[str, Any]
    bins: Bins | None
    part: int
    seq: int


@dataclass(slots=True, eq=False)
class Life:
    """One life. `last_seen_ms` is the partition's clock at its last record.

    `active_ms` is its shard's clock at its last record that was not stale, in batch `active_in`. `silent` tells whether
    it was found silent since then, in an earlier checkpoint; None if unknown.

    `ahead_ms` is the time of its ULID, which may be after its first record. It is None in the short form, which is
    never forgotten. `perhaps` is true if the sums may or may not have these rows, depending on whether the life was
    forgotten before a tombstone or a forget record.

    `here` are the parts whose newest snapshot is from `partition`.
    """

    app: str
    instance: str
    partition: str
    every_ms: int
    last_seen_ms: int
    active_ms: int
    ahead_ms: int | None
    final: bool = False
    active_in: int = 0
    silent: bool | None = False
    perhaps: bool = False
    seqs: dict[int, int] = field(default_factory=dict)
    complete: bool = True
    here: set[int] = field(default_factory=set)
    rows: dict[Identity, Row] = field(default_factory=dict)

    def may_be_forgotten(self, clock_ms: int) -> bool:
        """Return whether the last record is so long ago that the aggregator may have forgotten the life."""
        return self.ahead_ms is not None and clock_ms - max(self.last_seen_ms, self.ahead_ms) >= FORGET_AFTER_MS

    @property
    def deadline_ms(self) -> int:
        """The partition's time from which on the life is silent: three intervals after `active_ms` (rule 5)."""
        return self.active_ms + 3 * self.every_ms

    def newest(self, row: Row) -> bool:
        """Return whether a row is of the newest snapshot of its part, which has all metrics if complete (rule 9)."""
        return not self.complete or self.seqs.get(row.part, 0) == row.seq
