"""Time lag, the age of the oldest unconsumed record, from the history of a partition's ends.

The collector records the end of each partition over time. The record at offset `committed` was appended when the end
moved past it. Its time between two observations is interpolated at a constant rate of production. For a record that is
older than the history, the result is a lower bound.

Transaction markers and compaction leave offsets without a record, which count as records here. So a group with nothing
to read may have a lag of a few "records", and an age. See `docs/lag.md`.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from tallystream_dashboards.lag.samples import MAX_GAP_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

HISTORY_MS = 3_600_000
"""The length of the history of a partition's ends, in ms. An older record has the age "≥ 1 h"."""
MAX_OBSERVATIONS = 4_000_000
"""The maximum number of observations of all partitions together; each takes 16 bytes."""
MIN_PER_PARTITION, MAX_PER_PARTITION = 60, 2_000


class TimeLag(NamedTuple):
    """The age of the oldest unconsumed record in seconds; 0 if there is none. If not `exact`, it is a lower bound."""

    seconds: float
    exact: bool = True

    def after(self, seconds: float) -> TimeLag:
        """Return the time lag `seconds` later if nothing is consumed meanwhile. A time lag of 0 stays 0."""
        return self if self == NO_LAG else TimeLag(self.seconds + seconds, self.exact)


NO_LAG = TimeLag(0.0)


def worst(time_lags: Sequence[TimeLag | None]) -> TimeLag | None:
    """Return the largest of several partitions' time lags. It is a lower bound if one is a lower bound or unknown.

    It is unknown (None) if all are unknown, or if some are unknown and the others are 0.
    """
    known = [one for one in time_lags if one is not None]
    if not known:
        return None
    seconds, exact = max(one.seconds for one in known), all(one.exact for one in known)
    if len(known) < len(time_lags):
        return None if exact and seconds == 0 else TimeLag(seconds, exact=False)
    return TimeLag(seconds, exact)


def max_observations(partitions: int) -> int:
    """Return the maximum number of observations of each partition."""
    return max(MIN_PER_PARTITION, min(MAX_PER_PARTITION, MAX_OBSERVATIONS // max(1, partitions)))


class EndOffsetHistory:
    """The ends of one partition over time, without observations between two equal ones."""

    __slots__ = ("_ends", "_times_ms")

    def __init__(self) -> None:
        self._times_ms: array[int] = array("q")
        self._ends: array[int] = array("q")

    def __len__(self) -> int:
        return len(self._times_ms)

    def add(self, ts_ms: int, end: int, *, limit: int = MAX_PER_PARTITION) -> None:
        """Add an observation, which must be later than all others, and keep at most `limit`.

        If the end falls (the topic was truncated or recreated), the history before is discarded.
        """
        times_ms, ends = self._times_ms, self._ends
        if ends and end < ends[-1]:
            del times_ms[:], ends[:]
        if len(ends) >= 2 and ends[-1] == ends[-2] == end and ts_ms - times_ms[-2] <= MAX_GAP_MS:
            times_ms[-1] = ts_ms
            return
        times_ms.append(ts_ms)
        ends.append(end)
        while len(times_ms) > 2 and times_ms[1] < ts_ms - HISTORY_MS:
            del times_ms[0], ends[0]
        if len(times_ms) > limit:
            # Every other observation of the older half is dropped, so ages of recent records keep their precision.
            del times_ms[1 : limit // 2 : 2], ends[1 : limit // 2 : 2]

    def forget_from(self, ts_ms: int) -> None:
        """Forget the observations at `ts_ms` and later."""
        kept = bisect_left(self._times_ms, ts_ms)
        del self._times_ms[kept:], self._ends[kept:]

    def time_lag(self, committed: int | None, *, now_ms: int) -> TimeLag | None:
        """Return the age of the record at offset `committed`, the next one that the group will read.

        Return None if nothing is committed, or if the committed offset is past the newest end.
        """
        if committed is None or not self._ends or committed > self._ends[-1]:
            return None
        if committed == self._ends[-1]:
            return NO_LAG
        after = bisect_right(self._ends, committed)
        latest_ms = self._times_ms[after]
        if after == 0 or latest_ms - self._times_ms[after - 1] > MAX_GAP_MS:
            return TimeLag((now_ms - latest_ms) / 1000, exact=False)
        earliest_ms, before = self._times_ms[after - 1], self._ends[after - 1]
        share = (committed - before) / (self._ends[after] - before)
        return TimeLag((now_ms - earliest_ms - share * (latest_ms - earliest_ms)) / 1000)
