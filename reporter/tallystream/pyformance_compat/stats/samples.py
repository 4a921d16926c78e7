"""Samples of the values of a histogram. Not thread-safe: the caller locks them."""

from __future__ import annotations

import random
from heapq import heappush, heappushpop
from math import log
from operator import itemgetter

from tallystream.metrics.sampling import SlidingTimeWindowReservoir
from tallystream.pyformance_compat._clock import WALL, Clock, metric_clock
from tallystream.pyformance_compat.stats.snapshot import Snapshot

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
