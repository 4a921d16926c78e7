"""Clocks, samples of the values of a histogram, and their percentiles. Samples are not thread-safe."""

from __future__ import annotations

import random
import time
from heapq import heappush, heappushpop
from math import log
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from tallystream.clock import SYSTEM_CLOCK
from tallystream.metrics.sampling import SlidingTimeWindowReservoir, quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tallystream.clock import Clock as MetricClock

__all__ = ["ExpDecayingSample", "SlidingTimeWindowSample", "Snapshot"]


class Clock(Protocol):
    """The source of the time."""

    def time(self) -> float:
        """Return seconds since any start."""


class Sample(Protocol):
    """A sample of the values, for the percentiles."""

    def update(self, value: float) -> None:
        """Add one value."""

    def get_snapshot(self) -> Snapshot:
        """Return the sampled values."""

    def clear(self) -> None:
        """Remove all values."""


WALL: Clock = time
"""The default, the module `time`, as in pyformance."""


class _GivenClock:
    def __init__(self, clock: Clock) -> None:
        self.monotonic: Callable[[], float] = clock.time

    def wall_ms(self) -> int:
        return int(self.monotonic() * 1000)


def metric_clock(clock: Clock) -> MetricClock:
    """Return the clock for a metric. For the module `time`, it is a monotonic clock."""
    return SYSTEM_CLOCK if clock is time else _GivenClock(clock)


class Snapshot:
    """Sorted values, in `values`."""

    def __init__(self, values: Iterable[float]) -> None:
        self.values = sorted(values)

    def get_size(self) -> int:
        """Return the number of values."""
        return len(self.values)

    def get_median(self) -> float:
        """Return the 50th percentile."""
        return self.get_percentile(0.5)

    def get_75th_percentile(self) -> float:
        """Return the 75th percentile."""
        return self.get_percentile(0.75)

    def get_95th_percentile(self) -> float:
        """Return the 95th percentile."""
        return self.get_percentile(0.95)

    def get_99th_percentile(self) -> float:
        """Return the 99th percentile."""
        return self.get_percentile(0.99)

    def get_999th_percentile(self) -> float:
        """Return the 99.9th percentile."""
        return self.get_percentile(0.999)

    def get_percentile(self, percentile: float) -> float:
        """Return the value at a share from 0 to 1, interpolated between two values (`quantile`); 0 without values.

        Raises:
            ValueError: the share is not from 0 to 1.
        """
        if not 0 <= percentile <= 1:
            raise ValueError(f"{percentile} is not in [0..1]")
        return quantile(self.values, percentile) if self.values else 0


DEFAULT_SIZE = 1028
DEFAULT_ALPHA = 0.015

_NO_WEIGHT = 745.0
"""A priority that is lower by this is 0 relative to the other: exp(-745) is the smallest float."""


class ExpDecayingSample:
    """A forward-decaying priority sample: recent values weigh more, by the factor exp(`alpha`) a second.

    Formula: Cormode et al., "Forward Decay: A Practical Time Decay Model for Streaming Systems", ICDE 2009: the weight
    of a value is exp(alpha * time), its priority weight / u with u uniform in (0, 1). The values with the highest
    priorities stay. The logarithms of priorities are stored, to avoid overflow.

    Args:
        size: the maximum number of values.
        alpha: the growth of weights, by the factor exp(alpha) each second.
        clock: the source of the time.
    """

    def __init__(self, size: int = DEFAULT_SIZE, alpha: float = DEFAULT_ALPHA, clock: Clock = WALL) -> None:
        self.size, self.alpha, self.clock = size, alpha, clock
        self._seconds = metric_clock(clock).monotonic
        self.clear()

    def clear(self) -> None:
        """Remove all values."""
        self._heap: list[tuple[float, int, float]] = []  # (priority, number, value)
        self._number = 0

    def get_size(self) -> int:
        """Return the number of sampled values."""
        return len(self._heap)

    def update(self, value: float) -> None:
        """Add one value."""
        if self.size == 0:
            return
        priority = self.alpha * self._seconds() - log(random.random() or 2.0**-54)
        if self._heap and priority - self._heap[0][0] > _NO_WEIGHT:
            # After about half a day without values, one old value stays, as in pyformance, and is replaced first.
            with_weight = [entry for entry in self._heap if priority - entry[0] <= _NO_WEIGHT]
            self._heap = sorted(with_weight) or [max(self._heap, key=itemgetter(1))]
        entry = (priority, self._number, value)
        self._number += 1
        if len(self._heap) < self.size:
            heappush(self._heap, entry)
        else:
            heappushpop(self._heap, entry)

    def get_snapshot(self) -> Snapshot:
        """Return the sampled values."""
        return Snapshot(value for _, _, value in self._heap)


class SlidingTimeWindowSample:
    """The values of the last `window` seconds, at most the newest 10,000 of them."""

    DEFAULT_WINDOW = 300
    MAX_SIZE = 10_000

    def __init__(self, window: float = DEFAULT_WINDOW, clock: Clock = WALL) -> None:
        self.window, self.clock = window, clock
        self._seconds = metric_clock(clock).monotonic
        self.clear()

    def clear(self) -> None:
        """Remove all values."""
        self._reservoir = SlidingTimeWindowReservoir(self.window, self.MAX_SIZE)

    def update(self, value: float) -> None:
        """Add one value."""
        self._reservoir.update([value], self._seconds())

    def get_snapshot(self) -> Snapshot:
        """Return the values of the window that ends now."""
        return Snapshot(self._reservoir.values(self._seconds()))
