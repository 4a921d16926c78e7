"""Samples of a group's committed offset in a partition, and the rates of production and consumption between them."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_GAP_MS = 90_000
"""The longest gap between two consecutive observations, in ms. The longest interval of the collector is 60 s."""
MIN_PERIOD_MS = 1000
"""The shortest period for a rate, in ms."""


class OffsetSample(NamedTuple):
    """The committed offset of a group in a partition, the partition's end and the group's members at one moment.

    `members` is None if it is not known.
    """

    ts_ms: int
    committed: int
    end: int
    members: int | None = None

    @property
    def lag(self) -> int:
        """The number of records after the committed offset, 0 or more."""
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class Rates:
    """Records a second over a period, produced to and consumed from one or more partitions."""

    produced: float
    consumed: float

    @property
    def net(self) -> float:
        """How fast the lag falls, in records a second; negative if it grows."""
        return self.consumed - self.produced


def total(rates: Sequence[Rates]) -> Rates:
    """Return the sum of the rates of several partitions."""
    return Rates(sum(one.produced for one in rates), sum(one.consumed for one in rates))


_WIDTH = 4
_UNKNOWN = -1


class OffsetSamples:
    """The samples of one group in one partition, in order of time, packed: a collector may have a million.

    Samples that equal both their neighbours are left out, and so are those that a window of `window_ms` does not need.
    """

    __slots__ = ("_packed", "_window_ms")

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._packed: array[int] = array("q")

    def __len__(self) -> int:
        return len(self._packed) // _WIDTH

    def add(self, sample: OffsetSample) -> None:
        """Add a sample, which must be later than all others."""
        packed = self._packed
        values = (sample.committed, sample.end, _UNKNOWN if sample.members is None else sample.members)
        consecutive = len(packed) >= 2 * _WIDTH and sample.ts_ms - packed[-2 * _WIDTH] <= MAX_GAP_MS
        if consecutive and tuple(packed[-3:]) == values == tuple(packed[-_WIDTH - 3 : -_WIDTH]):
            packed[-_WIDTH] = sample.ts_ms
            return
        packed.extend((sample.ts_ms, *values))
        begin_ms, drop = sample.ts_ms - self._window_ms, 0
        # The last sample before the window stays: it was valid when the window began.
        while drop + _WIDTH < len(packed) and packed[drop + _WIDTH] < begin_ms:
            drop += _WIDTH
        del packed[:drop]

    def forget_from(self, ts_ms: int) -> None:
        """Forget the samples at `ts_ms` and later."""
        packed = self._packed
        while packed and packed[-_WIDTH] >= ts_ms:
            del packed[-_WIDTH:]

    def all(self) -> list[OffsetSample]:
        """Return the samples, oldest first."""
        numbers = iter(self._packed)
        return [
            OffsetSample(ts_ms, committed, end, None if members == _UNKNOWN else members)
            for ts_ms, committed, end, members in zip(numbers, numbers, numbers, numbers, strict=True)
        ]

    def rates(self, now_ms: int) -> tuple[Rates | None, Rates | None]:
        """Return the rates over the window and over its newer half. The difference shows how uncertain they are."""
        return self._rates(now_ms - self._window_ms), self._rates(now_ms - self._window_ms // 2)

    def _rates(self, begin_ms: int) -> Rates | None:
        """Return the rates since `begin_ms`; None if that is less than a second.

        If an end or an offset went back (a recreated topic, a rewind), its rate is 0, not negative.
        """
        packed, size = self._packed, len(self._packed)
        at = 0
        while at < size and packed[at] < begin_ms:
            at += _WIDTH
        first_ms = packed[at] if at < size else begin_ms
        # Unchanged samples are left out, so the sample just before the period was still valid when it began.
        if 0 < at < size and packed[at] > begin_ms and packed[at] - packed[at - _WIDTH] <= MAX_GAP_MS:
            at, first_ms = at - _WIDTH, begin_ms
        if size - at < 2 * _WIDTH or packed[-_WIDTH] - first_ms < MIN_PERIOD_MS:
            return None
        seconds = (packed[-_WIDTH] - first_ms) / 1000
        committed, end = packed[-_WIDTH + 1] - packed[at + 1], packed[-_WIDTH + 2] - packed[at + 2]
        return Rates(max(0, end) / seconds, max(0, committed) / seconds)
