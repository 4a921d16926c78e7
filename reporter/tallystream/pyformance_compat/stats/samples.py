"""Samples of the values of a histogram. Not locked: their owner does that."""

from __future__ import annotations

import random
from heapq import heappush, heappushpop
from math import log
from operator import itemgetter

from tallystream.metrics.reservoirs import SlidingTimeWindowReservoir
from tallystream.pyformance_compat._clock import WALL, Clock, metric_clock
from tallystream.pyformance_compat.stats.snapshot import Snapshot

DEFAULT_SIZE = 1028
DEFAULT_ALPHA = 0.015

_NO_WEIGHT = 745.0
"""A priority that is lower by this is 0 beside the other: exp(-745) is the smallest float."""


class ExpDecayingSample:
    """A forward-decaying priority sample: recent values weigh more, by the factor exp(`alpha`) a second.

    Formula: Cormode et al., "Forward Decay: A Practical Time Decay Model for Streaming Systems", ICDE 2009: the weight
    of a value is exp(alpha * time), its priority weight / u with u uniform in (0, 1); the highest priorities stay. Here
    a priority is its logarithm, which does not overflow.

    Args:
        size: how many values are kept at most.
        alpha: how much more recent values weigh.
        clock: where the seconds come from.
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
        """Return how many values are kept now."""
        return len(self._heap)

    def update(self, value: float) -> None:
        """Add one value."""
        if self.size == 0:
            return
        priority = self.alpha * self._seconds() - log(random.random() or 2.0**-54)
        if self._heap and priority - self._heap[0][0] > _NO_WEIGHT:
            # After half a day without values one old value stays, as in pyformance, and is the first to be replaced.
            with_weight = [entry for entry in self._heap if priority - entry[0] <= _NO_WEIGHT]
            self._heap = sorted(with_weight) or [max(self._heap, key=itemgetter(1))]
        entry = (priority, self._number, value)
        self._number += 1
        if len(self._heap) < self.size:
            heappush(self._heap, entry)
        else:
            heappushpop(self._heap, entry)

    def get_snapshot(self) -> Snapshot:
        """Return the values kept."""
        return Snapshot(value for _, _, value in self._heap)


class SlidingTimeWindowSample:
    """The values of the last `window` seconds, of which the newest 10,000 at most."""

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
