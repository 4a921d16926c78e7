"""Counters whose names and tags are known, as the block of their counts."""

from __future__ import annotations

import msgspec

from tallystream.record import Counter


class Counters(msgspec.Struct, gc=False):
    """Counters: their counts, and metrics that have their names and tags, but earlier counts.

    `named` is the same object as long as the metrics are known.
    """

    named: tuple[Counter, ...]
    counts: tuple[int, ...]

    @property
    def metrics(self) -> list[Counter]:
        """The counters as metrics."""
        pairs = zip(self.named, self.counts, strict=True)
        return [Counter(name=one.name, tags=one.tags, count=count) for one, count in pairs]
