"""The sample that decays, Dropwizard's default: recent values are more likely to be in it."""

from __future__ import annotations

import random
from heapq import heappush, heapreplace
from math import exp, log
from typing import TYPE_CHECKING

from tallystream.metrics.reservoir import View, view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class DecayingReservoir:
    """A forward-decaying priority sample, Dropwizard's default: 1028 values, alpha 0.015, about the last five minutes.

    Formula: Cormode et al., "Forward Decay: A Practical Time Decay Model for Streaming Systems", ICDE 2009: the weight
    of a value is exp(alpha * time), its priority weight / u with u uniform in (0, 1]; the highest priorities stay. The
    logarithms of both are kept, which never leave the range of floats. Not locked: its owner does that.

    Args:
        size: how many values are kept.
        alpha: how fast they lose weight: by the factor exp(-alpha) a second.
        random: gives numbers in [0, 1).
    """

    __slots__ = ("_alpha", "_heap", "_random", "_size")

    def __init__(self, size: int = 1028, alpha: float = 0.015, random: Callable[[], float] = random.random) -> None:
        self._size, self._alpha, self._random = size, alpha, random
        self._heap: list[tuple[float, float, float]] = []  # log(priority), log(weight), value

    def update(self, values: Iterable[float], now: float) -> None:
        """Take values that were seen at `now`, monotonic seconds."""
        heap, size, draw, weight = self._heap, self._size, self._random, self._alpha * now
        for value in values:
            priority = weight - log(1.0 - draw())
            if len(heap) < size:
                heappush(heap, (priority, weight, value))
            elif priority > heap[0][0]:
                heapreplace(heap, (priority, weight, value))

    def sample(self) -> list[tuple[float, float]]:
        """Return the sampled values with their weights, of which the greatest is 1, in no order."""
        newest = max((weight for _, weight, _ in self._heap), default=0.0)
        return [(value, exp(weight - newest)) for _, weight, value in self._heap]

    def view(self, now: float) -> View | None:  # noqa: ARG002 - weights are relative to one another
        """Return what the sample says."""
        return view(self.sample())
