"""Tells which partitions of `metrics` need a clock record, so that time passes there though no instance publishes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_aggregator.stream.broker import Place

UNMOVED_S = 1.0
"""A partition needs a clock record when its end has not moved for this many seconds, up to `MANY` partitions."""
MANY = 50
EVERY_S = 60.0
"""A partition gets a clock record at least this often: records of other shards do not advance the time of a shard."""
UNNEEDED_EVERY_S = 3600.0
"""The same while no life is living. Then lives can only be forgotten, after days."""


class ClockTimer:
    """Decides by the ends of the partitions. Times are in seconds, of a clock that is never set back."""

    def __init__(self) -> None:
        self._ends: dict[Place, tuple[int, float]] = {}
        self._last_s: dict[Place, float] = {}

    @staticmethod
    def quiet_s(partitions: int) -> float:
        """Return after how many seconds without a record one of so many partitions needs a clock record."""
        return UNMOVED_S * max(1.0, partitions / MANY)

    def due(self, ends: Mapping[Place, int], now_s: float, *, living: bool = True) -> list[Place]:
        """Return the partitions that need a clock record now. `ends` are the end offsets of all of them.

        `living` tells whether a life may be living. Call it several times in `quiet_s`. The caller appends the records.
        """
        quiet_s, every_s = self.quiet_s(len(ends)), EVERY_S if living else UNNEEDED_EVERY_S
        due = []
        for place, end in ends.items():
            before, since_s = self._ends.get(place, (end, now_s))
            if end != before:
                since_s = now_s
            if (living and now_s - since_s >= quiet_s) or now_s - self._last_s.setdefault(place, now_s) >= every_s:
                due.append(place)
                since_s = self._last_s[place] = now_s
            self._ends[place] = end, since_s
        return due
