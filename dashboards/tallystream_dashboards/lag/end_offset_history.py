"""How the end of each partition moved, in memory: bounded, and dense enough to tell how old a record is."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from tallystream_dashboards.lag.time_lag import MAX_GAP_MS, SecondsLag, age_in, appended

if TYPE_CHECKING:
    from collections.abc import Sequence

HISTORY_MS = 3_600_000
"""How far back the ends of a partition are remembered: an older lag is "≥ 1 h"."""
BUDGET = 4_000_000
"""Observations of all partitions together, 16 bytes each."""
FEWEST, MOST = 60, 2_000


def limit(partitions: int) -> int:
    """Return how many observations each of so many partitions may have."""
    return max(FEWEST, min(MOST, BUDGET // max(1, partitions)))


class Ends:
    """The ends of one partition over time. What lies between two equal observations is left out: it is known."""

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self._times: array[int] = array("q")
        self._ends: array[int] = array("q")

    def __len__(self) -> int:
        return len(self._times)

    def add(self, ts_ms: int, end: int, *, most: int = MOST) -> None:
        """Take an observation, later than all before; after a fall only what came since counts."""
        times, ends = self._times, self._ends
        if ends and end < ends[-1]:
            del times[:], ends[:]
        if len(ends) >= 2 and ends[-1] == ends[-2] == end and ts_ms - times[-2] <= MAX_GAP_MS:
            times[-1] = ts_ms
            return
        times.append(ts_ms)
        ends.append(end)
        while len(times) > 2 and times[1] < ts_ms - HISTORY_MS:
            del times[0], ends[0]
        if len(times) > most:
            # Every other of the older half: what is left is still true, and new records keep their precision.
            del times[1 : most // 2 : 2], ends[1 : most // 2 : 2]

    def age(self, committed: int | None, *, now_ms: int) -> SecondsLag:
        """Return the age of the record at offset `committed`."""
        return age_in(committed, self._times, self._ends, now_ms=now_ms)

    def appended(self, offset: int) -> tuple[int | None, int] | None:
        """Return between which moments the record at `offset` came, the first None where it is before the history.

        None for an offset that is not below the end.
        """
        if not self._ends or offset >= self._ends[-1]:
            return None
        return appended(offset, self._times, self._ends)[:2]

    def load(self, times_ms: Sequence[int], ends: Sequence[int]) -> None:
        """Take what was observed before."""
        for ts_ms, end in zip(times_ms, ends, strict=True):
            self.add(ts_ms, end)
