"""Time lag, the age of the oldest unconsumed record, from the history of a partition's ends.

The collector records the end of each partition over time. The record at offset `committed` was appended when the end
moved past it. Its time between two observations is interpolated at a constant rate of production. For a record that is
older than the history, the result is a lower bound.

Transaction markers and compaction leave offsets without a record, which count as records here. So a group with nothing
to read may have a lag of a few "records", and an age. See `docs/lag.md`.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from tallystream_dashboards import formatting
from tallystream_dashboards.lag.samples import MAX_GAP_MS, History

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
        return TimeLag(self.seconds + seconds, self.exact) if self.seconds else self


NO_LAG = TimeLag(0.0)


def text(value: TimeLag | None) -> str:
    """Return a time lag as text: `12 s`, `≥ 10 min`, or a dash if it is not known."""
    if value is None or (not value.exact and value.seconds < 1):
        return formatting.DASH
    if value == NO_LAG:
        return "0 s"
    shown = formatting.duration(value.seconds) if value.seconds >= 1 else "< 1 s"
    return shown if value.exact else f"≥ {shown}"


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


class EndOffsetHistory(History):
    """The ends of one partition over the last hour."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(1)

    def add(self, ts_ms: int, end: int, *, limit: int = MAX_PER_PARTITION) -> None:
        """Add an observation, which must be later than all others, and keep at most `limit`.

        If the end falls (the topic was truncated or recreated), the history before is discarded.
        """
        packed = self._packed
        if packed and end < packed[-1]:
            del packed[:]
        self.observe(ts_ms, end)
        self.drop_before(ts_ms - HISTORY_MS)
        if len(self) > limit:
            # Every other observation of the older half is dropped, so ages of recent records keep their precision.
            for index in reversed(range(1, limit // 2, 2)):
                del packed[2 * index : 2 * index + 2]

    def time_lag(self, committed: int | None, *, now_ms: int) -> TimeLag | None:
        """Return the age of the record at offset `committed`, the next one that the group will read.

        Return None if nothing is committed, or if the committed offset is past the newest end.
        """
        packed = self._packed
        if committed is None or not packed or committed > packed[-1]:
            return None
        if committed == packed[-1]:
            return NO_LAG
        after = bisect_right(range(len(self)), committed, key=lambda index: packed[2 * index + 1])
        latest_ms, latest = packed[2 * after : 2 * after + 2]
        if after == 0 or latest_ms - packed[2 * after - 2] > MAX_GAP_MS:
            return TimeLag((now_ms - latest_ms) / 1000, exact=False)
        earliest_ms, before = packed[2 * after - 2 : 2 * after]
        share = (committed - before) / (latest - before)
        return TimeLag((now_ms - earliest_ms - share * (latest_ms - earliest_ms)) / 1000)
