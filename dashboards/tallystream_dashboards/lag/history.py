"""The history of offsets in memory, of partitions' ends and of groups, and the clock skew computed from it."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from tallystream_dashboards.lag.catch_up import SHORTEST_MS, Rates
from tallystream_dashboards.lag.status import HELD_MS, OffsetSample
from tallystream_dashboards.lag.time_lag import MAX_GAP_MS, SecondsLag, age_in, appended

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HISTORY_MS = 3_600_000
"""The length of the history of a partition's ends, in ms. An older record has the age "≥ 1 h"."""
BUDGET = 4_000_000
"""The maximum number of observations of all partitions together; each takes 16 bytes."""
FEWEST, MOST = 60, 2_000


def limit(partitions: int) -> int:
    """Return the maximum number of observations of each partition."""
    return max(FEWEST, min(MOST, BUDGET // max(1, partitions)))


class EndOffsetHistory:
    """The ends of one partition over time, without observations between two equal ones."""

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self._times: array[int] = array("q")
        self._ends: array[int] = array("q")

    def __len__(self) -> int:
        return len(self._times)

    def add(self, ts_ms: int, end: int, *, most: int = MOST) -> None:
        """Add an observation, which must be later than all others. A fall of the end discards the history before."""
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
            # Every other observation of the older half is dropped, so ages of recent records keep their precision.
            del times[1 : most // 2 : 2], ends[1 : most // 2 : 2]

    def age(self, committed: int | None, *, now_ms: int) -> SecondsLag:
        """Return the age of the record at offset `committed`."""
        return age_in(committed, self._times, self._ends, now_ms=now_ms)

    def appended(self, offset: int) -> tuple[int | None, int] | None:
        """Return the two moments between which the record at `offset` was appended; None if it is not below the end.

        The first moment is None if the record is older than the history.
        """
        if not self._ends or offset >= self._ends[-1]:
            return None
        return appended(offset, self._times, self._ends)[:2]

    def load(self, times_ms: Sequence[int], ends: Sequence[int]) -> None:
        """Add earlier observations, in order of time."""
        for ts_ms, end in zip(times_ms, ends, strict=True):
            self.add(ts_ms, end)


_WIDTH = 4
_NONE = -1


class OffsetSamples:
    """Samples in order of time, without those that equal both their neighbours."""

    __slots__ = ("_packed",)

    def __init__(self) -> None:
        self._packed: array[int] = array("q")

    def __len__(self) -> int:
        return len(self._packed) // _WIDTH

    def add(self, sample: OffsetSample, *, window_ms: int) -> None:
        """Add a sample, which must be later than all others, and drop those that its window does not need."""
        packed = self._packed
        values = (sample.committed, sample.end, _NONE if sample.members is None else sample.members)
        held = len(packed) >= 2 * _WIDTH and sample.ts_ms - packed[-2 * _WIDTH] <= HELD_MS
        if held and tuple(packed[-3:]) == values == tuple(packed[-_WIDTH - 3 : -_WIDTH]):
            packed[-_WIDTH] = sample.ts_ms
            return
        packed.extend((sample.ts_ms, *values))
        begin, drop = sample.ts_ms - window_ms, 0
        # The last sample before the window stays: it was valid when the window began.
        while drop + _WIDTH < len(packed) and packed[drop + _WIDTH] < begin:
            drop += _WIDTH
        del packed[:drop]

    def all(self) -> list[OffsetSample]:
        """Return the samples, oldest first."""
        numbers = iter(self._packed)
        return [
            OffsetSample(ts_ms, committed, end, None if members == _NONE else members)
            for ts_ms, committed, end, members in zip(numbers, numbers, numbers, numbers, strict=True)
        ]

    def rates(self, begin_ms: int) -> Rates | None:
        """Return the rates since `begin_ms`, as `catch_up.rates` does, without unpacking the samples."""
        packed, size = self._packed, len(self._packed)
        at = 0
        while at < size and packed[at] < begin_ms:
            at += _WIDTH
        since_ms = packed[at] if at < size else begin_ms
        if 0 < at < size and packed[at] - packed[at - _WIDTH] <= HELD_MS:
            at, since_ms = at - _WIDTH, begin_ms
        if size - at < 2 * _WIDTH or packed[-_WIDTH] - since_ms < SHORTEST_MS:
            return None
        seconds = (packed[-_WIDTH] - since_ms) / 1000
        committed, end = packed[-_WIDTH + 1] - packed[at + 1], packed[-_WIDTH + 2] - packed[at + 2]
        return Rates(max(0, end) / seconds, max(0, committed) / seconds)


TOLERANCE_MS = 5_000
"""A smaller difference is no skew: a record takes some time to arrive, and clocks differ a little."""


def skew(timestamp_ms: int, earliest_ms: int | None, latest_ms: int, *, tolerance_ms: int = TOLERANCE_MS) -> int:
    """Return how many ms a record's timestamp is ahead of its arrival (negative: behind it); 0: no skew.

    The record arrived between `earliest_ms` (None: not known) and `latest_ms` by the collector's clock. The result is a
    lower bound of the skew.
    """
    if timestamp_ms > latest_ms + tolerance_ms:
        return timestamp_ms - latest_ms
    if earliest_ms is not None and timestamp_ms < earliest_ms - tolerance_ms:
        return timestamp_ms - earliest_ms
    return 0


def skews(
    newest: Mapping[tuple[str, int], tuple[int, int]],
    ends: Mapping[tuple[str, int], EndOffsetHistory],
    asked: Mapping[int, int],
) -> dict[tuple[str, int], int]:
    """Return the skew of each partition by its record with the highest timestamp: (offset, timestamp in ms).

    `asked` has the time of each request for the ends, by the time of its answer. The broker read the ends between the
    two, so a record beyond them may have arrived at any time after the request.
    """
    found = {}
    for place, (offset, timestamp_ms) in newest.items():
        came = ends[place].appended(offset) if place in ends else None
        if came is not None:
            earliest_ms, latest_ms = came
            found[place] = skew(timestamp_ms, asked.get(earliest_ms or 0, earliest_ms), latest_ms)
    return found
