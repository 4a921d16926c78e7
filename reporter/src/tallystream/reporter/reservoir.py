"""A sample of a distribution for the instance's own view: recent values weigh more.

Percentiles of a sample can't be merged over instances; what is merged is counted apart (count, sum, min, max, sketch).
"""

from __future__ import annotations

from heapq import heapify, heappush, heapreplace
from math import exp, sqrt
from random import Random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

RESCALE_AFTER = 3600.0
"""Seconds after which the landmark moves, so that weights stay far from overflow."""

QUANTILES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}


class View(NamedTuple):
    """What a sample says of the values seen lately."""

    mean: float
    stddev: float
    p50: float
    p75: float
    p95: float
    p98: float
    p99: float
    p999: float


def view(weighted: Sequence[tuple[float, float]]) -> View | None:
    """Return mean, standard deviation and quantiles of (value, weight) pairs; None where there are none.

    The quantile q is the smallest value at or below which lies a share of at least q of the weight.
    """
    if not weighted:
        return None
    ordered = sorted(weighted)
    total = sum(weight for _, weight in ordered)
    mean = sum(value * weight for value, weight in ordered) / total
    variance = sum(weight * (value - mean) ** 2 for value, weight in ordered) / total
    found: list[float] = []
    wanted = list(QUANTILES.values())
    passed = 0.0
    for value, weight in ordered:
        passed += weight
        while len(found) < len(wanted) and passed >= wanted[len(found)] * total:
            found.append(value)
    found += [ordered[-1][0]] * (len(wanted) - len(found))
    return View(mean, sqrt(variance), *found)


class DecayingReservoir:
    """A forward-decaying priority sample, Dropwizard's default: 1028 values, alpha 0.015, about the last five minutes.

    Formula: Cormode et al., "Forward Decay: A Practical Time Decay Model for Streaming Systems", ICDE 2009: the weight
    of a value is exp(alpha * (time - landmark)), its priority weight / u with u uniform in (0, 1]; the highest
    priorities stay. Not locked: its owner does that.
    """

    __slots__ = ("_alpha", "_heap", "_landmark", "_random", "_size")

    def __init__(self, now: float, size: int = 1028, alpha: float = 0.015, seed: int | None = None) -> None:
        self._size, self._alpha, self._landmark = size, alpha, now
        self._random = Random(seed).random
        self._heap: list[tuple[float, float, float]] = []  # (priority, value, weight)

    def update(self, values: Iterable[float], now: float) -> None:
        """Take values that were seen at `now`, monotonic seconds."""
        if now - self._landmark >= RESCALE_AFTER:
            self._rescale(now)
        weight = exp(self._alpha * (now - self._landmark))
        heap, size, random = self._heap, self._size, self._random
        for value in values:
            priority = weight / (1.0 - random())
            if len(heap) < size:
                heappush(heap, (priority, value, weight))
            elif priority > heap[0][0]:
                heapreplace(heap, (priority, value, weight))

    def sample(self) -> list[tuple[float, float]]:
        """Return the sampled values with their weights, in no order."""
        return [(value, weight) for _, value, weight in self._heap]

    def _rescale(self, now: float) -> None:
        factor = exp(-self._alpha * (now - self._landmark))
        self._landmark = now
        self._heap = [(p * factor, value, weight * factor) for p, value, weight in self._heap if weight * factor > 0]
        heapify(self._heap)
