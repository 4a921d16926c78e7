"""What a collector observes over time, packed, and the rates of production and consumption between observations."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_GAP_MS = 90_000
"""The longest gap between two consecutive observations, in ms. The longest interval of the collector is 60 s."""
MIN_PERIOD_MS = 1000
"""The shortest period for a rate, in ms."""


class OffsetSample(NamedTuple):
    """The committed offset of a group in a partition, and the partition's end, at one moment."""

    ts_ms: int
    committed: int
    end: int

    @property
    def lag(self) -> int:
        """The number of records after the committed offset, 0 or more."""
        return max(0, self.end - self.committed)


class Rates(NamedTuple):
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


class History:
    """Numbers observed over time, in order, packed: a collector may have millions of observations.

    Those that equal both their neighbours are left out.
    """

    __slots__ = ("_packed", "_width")

    def __init__(self, numbers: int) -> None:
        self._width = 1 + numbers
        self._packed: array[int] = array("q")

    def __len__(self) -> int:
        return len(self._packed) // self._width

    def observe(self, ts_ms: int, *numbers: int) -> None:
        """Add what was observed at a time, which must be later than all others."""
        packed, width = self._packed, self._width
        consecutive = len(packed) >= 2 * width and ts_ms - packed[-2 * width] <= MAX_GAP_MS
        if consecutive and tuple(packed[1 - width :]) == numbers == tuple(packed[1 - 2 * width : -width]):
            packed[-width] = ts_ms
        else:
            packed.extend((ts_ms, *numbers))

    def drop_before(self, begin_ms: int) -> None:
        """Drop what was observed before, but for the last observation: it was valid at `begin_ms`."""
        packed, width, drop = self._packed, self._width, 0
        while drop + width < len(packed) and packed[drop + width] < begin_ms:
            drop += width
        del packed[:drop]


class OffsetSamples(History):
    """The samples of one group in one partition that a window of `window_ms` needs."""

    __slots__ = ("_window_ms",)

    def __init__(self, window_ms: int) -> None:
        super().__init__(2)
        self._window_ms = window_ms

    def add(self, sample: OffsetSample) -> None:
        """Add a sample, which must be later than all others."""
        self.observe(*sample)
        self.drop_before(sample.ts_ms - self._window_ms)

    def all(self) -> list[OffsetSample]:
        """Return the samples, oldest first."""
        numbers = iter(self._packed)
        return [OffsetSample(*row) for row in zip(numbers, numbers, numbers, strict=True)]

    def rates(self, now_ms: int) -> tuple[Rates | None, Rates | None]:
        """Return the rates over the window and over its newer half. The difference shows how uncertain they are."""
        return self._rates(now_ms - self._window_ms), self._rates(now_ms - self._window_ms // 2)

    def _rates(self, begin_ms: int) -> Rates | None:
        """Return the rates since `begin_ms`; None if that is less than a second.

        If an end or an offset went back (a recreated topic, a rewind), its rate is 0, not negative.
        """
        packed, width, size = self._packed, self._width, len(self._packed)
        at = 0
        while at < size and packed[at] < begin_ms:
            at += width
        first_ms = packed[at] if at < size else begin_ms
        # Unchanged samples are left out, so the sample just before the period was still valid when it began.
        if 0 < at < size and packed[at] > begin_ms and packed[at] - packed[at - width] <= MAX_GAP_MS:
            at, first_ms = at - width, begin_ms
        if size - at < 2 * width or packed[-width] - first_ms < MIN_PERIOD_MS:
            return None
        seconds = (packed[-width] - first_ms) / 1000
        committed, end = packed[-2] - packed[at + 1], packed[-1] - packed[at + 2]
        return Rates(max(0, end) / seconds, max(0, committed) / seconds)
