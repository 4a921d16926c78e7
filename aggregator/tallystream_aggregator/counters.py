"""Counters whose names and tags are known, as the block of their counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.record import Counter, Metric

if TYPE_CHECKING:
    from collections.abc import Iterator


class Counters(msgspec.Struct, gc=False):
    """Counters: their counts, and metrics that have their names and tags, but earlier counts.

    `named` is the same object as long as the metrics are known.
    """

    named: tuple[Counter, ...]
    counts: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.counts)

    def __iter__(self) -> Iterator[Counter]:
        for one, count in zip(self.named, self.counts, strict=True):
            yield Counter(name=one.name, tags=one.tags, count=count)


SnapshotMetrics = list[Metric] | Counters
"""The metrics of a snapshot."""
