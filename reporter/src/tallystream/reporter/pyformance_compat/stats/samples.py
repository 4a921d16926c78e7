"""Samples of the values of a histogram. Not locked: their owner does that."""

from __future__ import annotations

import random
from collections import deque
from heapq import heapify, heappush, heapreplace
from math import exp
from operator import itemgetter

from tallystream.reporter.pyformance_compat._clock import WALL, Clock, elapsing
from tallystream.reporter.pyformance_compat.stats.snapshot import Snapshot

DEFAULT_SIZE = 1028
DEFAULT_ALPHA = 0.015

_LARGEST_EXPONENT = 500.0
"""Weights above exp of this move the landmark: beyond 709 they leave the range of floats."""


class ExpDecayingSample:
    """A forward-decaying priority sample: recent values weigh more, by `alpha` a second.

    Formula: Cormode et al., "Forward Decay: A Practical Time Decay Model for Streaming Systems", ICDE 2009: the weight
    of a value is exp(alpha * (time - landmark)), its priority weight / u with u uniform; the highest priorities stay.

    Args:
        size: how many values are kept at most.
        alpha: how much more recent values weigh.
        clock: where the seconds come from.
    """

    RESCALE_THREASHOLD = 3600.0  # seconds; the spelling is pyformance's

    def __init__(self, size: int = DEFAULT_SIZE, alpha: float = DEFAULT_ALPHA, clock: Clock = WALL) -> None:
        self.size, self.alpha, self.clock = size, alpha, clock
        self._seconds = elapsing(clock)
        self.clear()

    def clear(self) -> None:
        """Forget all values."""
        self._heap: list[tuple[float, int, float]] = []  # (priority, number, value)
        self._number = 0
        self._landmark = self._seconds()

    def get_size(self) -> int:
        """Return how many values are kept now."""
        return len(self._heap)

    def update(self, value: float) -> None:
        """Take one value."""
        if self.size == 0:
            return
        now = self._seconds()
        age = now - self._landmark
        if age >= self.RESCALE_THREASHOLD or self.alpha * age > _LARGEST_EXPONENT:
            self._rescale(now)
        priority = exp(self.alpha * (now - self._landmark)) / (random.random() or 2.0**-54)
        if len(self._heap) < self.size:
            heappush(self._heap, (priority, self._number, value))
        elif priority > self._heap[0][0]:
            heapreplace(self._heap, (priority, self._number, value))
        self._number += 1

    def get_snapshot(self) -> Snapshot:
        """Return the values kept."""
        return Snapshot(value for _, _, value in self._heap)

    def _rescale(self, now: float) -> None:
        factor = exp(-self.alpha * (now - self._landmark))
        self._landmark = now
        rescaled = [(priority * factor, number, value) for priority, number, value in self._heap]
        # Of what has no weight left, after a silence of half a day, the newest stays, to be the first that goes.
        self._heap = [entry for entry in rescaled if entry[0] > 0]
        self._heap += sorted((entry for entry in rescaled if entry[0] == 0), key=itemgetter(1))[-1:]
        heapify(self._heap)


class SlidingTimeWindowSample:
    """All values of the last `window` seconds: as much memory as they take, and no more."""

    DEFAULT_WINDOW = 300

    def __init__(self, window: float = DEFAULT_WINDOW, clock: Clock = WALL) -> None:
        self.window, self.clock = window, clock
        self._seconds = elapsing(clock)
        self.clear()

    def clear(self) -> None:
        """Forget all values."""
        self._values: deque[tuple[float, float]] = deque()  # (when, value)

    def update(self, value: float) -> None:
        """Take one value."""
        self._values.append((self._trim(), value))

    def get_snapshot(self) -> Snapshot:
        """Return the values of the window that ends now."""
        self._trim()
        return Snapshot(value for _, value in self._values)

    def _trim(self) -> float:
        now = self._seconds()
        while self._values and self._values[0][0] < now - self.window:
            self._values.popleft()
        return now
