"""A sample of a distribution, for the instance's own view, and what is read from it; here the one that decays.

Percentiles of a sample can't be merged over instances; what is merged is counted apart (count, sum, min, max, sketch).
The other samples are in `windows.py`; `sampling.py` is how a histogram is told which one to keep.
"""

from __future__ import annotations

import random
from array import array
from bisect import bisect_left
from heapq import heapify, heappush, heapreplace
from itertools import accumulate
from math import exp, fsum, sqrt
from operator import mul
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

RESCALE_AFTER = 3600.0
"""Seconds after which the landmark moves, so that weights stay far from overflow."""

MANY = 20
"""Values that enter a sample at once, beyond which it is sorted when it is read, not kept in order."""

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


class Reservoir(Protocol):
    """A sample. Not locked: its owner does that."""

    def update(self, values: Sequence[float], now: float) -> None:
        """Take values that were seen at `now`, monotonic seconds."""

    def hold(self, now: float) -> Callable[[], View | None]:
        """Keep the sample as it is at `now`, and return what works out its view, later and without a lock."""


def view(weighted: Sequence[tuple[float, float]]) -> View | None:
    """Return mean, standard deviation and quantiles of (value, weight) pairs; None where there are none.

    The quantile q is the smallest value at or below which lies a share of at least q of the weight; the deviation is
    the population's (Dropwizard's WeightedSnapshot).
    """
    if not weighted:
        return None
    ordered = sorted(weighted)
    return _weighted_view([value for value, _ in ordered], [weight for _, weight in ordered])


def _weighted_view(values: list[float], weights: list[float]) -> View:
    passed = list(accumulate(weights))
    total = passed[-1]
    # Moments about a value in the middle: as exact as about the mean, in one pass of C.
    middle = values[len(values) // 2]
    distances = [value - middle for value in values]
    weighted = list(map(mul, distances, weights))
    shift = sum(weighted) / total
    variance = max(sum(map(mul, weighted, distances)) / total - shift * shift, 0.0)
    return View(
        middle + shift, sqrt(variance), *[values[bisect_left(passed, share * total)] for share in QUANTILES.values()]
    )


def plain_view(values: Sequence[float]) -> View | None:
    """Return mean, standard deviation and quantiles of values of equal weight; None where there are none.

    As Dropwizard's UniformSnapshot has them: the quantile q is at the position q * (n + 1), between two values in
    proportion; the deviation is the sample's, with n - 1 below.
    """
    if not values:
        return None
    ordered = sorted(values)
    size = len(ordered)
    mean = fsum(ordered) / size
    deviation = sqrt(fsum((value - mean) ** 2 for value in ordered) / (size - 1)) if size > 1 else 0.0
    found = []
    for share in QUANTILES.values():
        position = share * (size + 1)
        below = int(position)
        if 1 <= below < size:
            low, high = ordered[below - 1], ordered[below]
            found.append(low + (position - below) * (high - low))
        else:
            found.append(ordered[0] if below < 1 else ordered[-1])
    return View(mean, deviation, *found)


class DecayingReservoir:
    """A forward-decaying priority sample, Dropwizard's default: 1028 values, alpha 0.015, about the last five minutes.

    Formula: Cormode et al., "Forward Decay: A Practical Time Decay Model for Streaming Systems", ICDE 2009: the weight
    of a value is exp(alpha * (time - landmark)), its priority weight / u with u uniform in (0, 1]; the highest
    priorities stay. Not locked: its owner does that.

    Args:
        now: monotonic seconds.
        size: how many values are kept.
        alpha: how fast they lose weight: by the factor exp(-alpha) a second.
        random: gives numbers in [0, 1).
    """

    __slots__ = ("_alpha", "_heap", "_landmark", "_random", "_size", "_stale", "_values", "_weights")

    def __init__(
        self, now: float, size: int = 1028, alpha: float = 0.015, random: Callable[[], float] = random.random
    ) -> None:
        self._size, self._alpha, self._landmark = size, alpha, now
        self._random = random
        self._heap: list[tuple[float, float, float]] = []  # (priority, value, weight)
        # The same values in rising order, and their weights: few values enter the sample, so order is cheaply kept.
        self._values, self._weights = array("d"), array("d")
        self._stale = False

    def update(self, values: Iterable[float], now: float) -> None:
        """Take values that were seen at `now`, monotonic seconds."""
        if now - self._landmark >= RESCALE_AFTER:
            self._rescale(now)
        weight = exp(self._alpha * (now - self._landmark))
        heap, size, draw = self._heap, self._size, self._random
        changes = 0
        for value in values:
            priority = weight / (1.0 - draw())
            if len(heap) < size:
                heappush(heap, (priority, value, weight))
            elif priority > heap[0][0]:
                _, old, its_weight = heapreplace(heap, (priority, value, weight))
                if self._stale:
                    continue
                place = self._weights.index(its_weight, bisect_left(self._values, old))  # among equal values
                del self._values[place], self._weights[place]
            else:
                continue
            changes += 1
            if self._stale or changes > MANY:
                self._stale = True
                continue
            place = bisect_left(self._values, value)
            self._values.insert(place, value)
            self._weights.insert(place, weight)

    def sample(self) -> list[tuple[float, float]]:
        """Return the sampled values with their weights, in no order."""
        return [(value, weight) for _, value, weight in self._heap]

    def hold(self, now: float) -> Callable[[], View | None]:  # noqa: ARG002 - weights are relative to one another
        """Keep the sample as it is, and return what works out its view."""
        if self._stale:
            self._order()
        values, weights = self._values[:], self._weights[:]
        return lambda: _weighted_view(values.tolist(), weights.tolist()) if values else None

    def _rescale(self, now: float) -> None:
        factor = exp(-self._alpha * (now - self._landmark))
        self._landmark = now
        self._heap = [(p * factor, value, weight * factor) for p, value, weight in self._heap if weight * factor > 0]
        heapify(self._heap)
        self._order()

    def _order(self) -> None:
        ordered = sorted((value, weight) for _, value, weight in self._heap)
        self._values = array("d", [value for value, _ in ordered])
        self._weights = array("d", [weight for _, weight in ordered])
        self._stale = False
