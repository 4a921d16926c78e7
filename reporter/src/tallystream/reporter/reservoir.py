"""A sample of a distribution, for the instance's own view, and what is read from it; here the one that decays.

Percentiles of a sample can't be merged over instances; what is merged is counted apart (count, sum, min, max, sketch).
The other samples are in `windows.py`; `sampling.py` is how a histogram is told which one to keep.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from heapq import heapify, heappush, heapreplace
from itertools import accumulate
from math import exp, fsum, sqrt
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tallystream.reporter._moments import Moments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

RESCALE_AFTER = 3600.0
"""Seconds after which the landmark moves, so that weights stay far from overflow."""

MANY = 20
"""Values that enter a sample at once, beyond which it is sorted when it is read, not kept in order."""

QUANTILES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}
_SHARES = tuple(QUANTILES.values())


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

    def view(self, now: float) -> View | None:
        """Return what the sample says at `now`, None where it is empty."""


def view(weighted: Sequence[tuple[float, float]]) -> View | None:
    """Return mean, standard deviation and quantiles of (value, weight) pairs; None where there are none.

    The quantile q is the smallest value at or below which lies a share of at least q of the weight; the deviation is
    the population's (Dropwizard's WeightedSnapshot).
    """
    if not weighted:
        return None
    ordered = sorted(weighted)
    values, weights = [value for value, _ in ordered], [weight for _, weight in ordered]
    moments = Moments()
    moments.sum_up(values, weights)
    return _weighted_view(values, weights, moments)


def _weighted_view(values: list[float], weights: list[float], moments: Moments) -> View:
    passed = list(accumulate(weights))
    total = passed[-1]
    mean, deviation = moments.read(values, weights)
    return View(mean, deviation, *[values[bisect_left(passed, share * total)] for share in _SHARES])


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

    __slots__ = ("_alpha", "_heap", "_landmark", "_moments", "_random", "_size", "_stale", "_values", "_weights")

    def __init__(
        self, now: float, size: int = 1028, alpha: float = 0.015, random: Callable[[], float] = random.random
    ) -> None:
        self._size, self._alpha, self._landmark = size, alpha, now
        self._random = random
        self._heap: list[tuple[float, float, float]] = []  # (priority, value, weight)
        # The same values in rising order, and their weights: few values enter the sample, so order is cheaply kept.
        self._values: list[float] = []
        self._weights: list[float] = []
        self._moments = Moments()
        self._stale = False

    def update(self, values: Iterable[float], now: float) -> None:
        """Take values that were seen at `now`, monotonic seconds."""
        if now - self._landmark >= RESCALE_AFTER:
            self._rescale(now)
        weight = exp(self._alpha * (now - self._landmark))
        heap, size, draw, moments = self._heap, self._size, self._random, self._moments
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
                moments.remove(old, its_weight)
            else:
                continue
            changes += 1
            if self._stale or changes > MANY:
                self._stale = True
                continue
            place = bisect_left(self._values, value)
            self._values.insert(place, value)
            self._weights.insert(place, weight)
            moments.add(value, weight)

    def sample(self) -> list[tuple[float, float]]:
        """Return the sampled values with their weights, in no order."""
        return [(value, weight) for _, value, weight in self._heap]

    def view(self, now: float) -> View | None:  # noqa: ARG002 - weights are relative to one another
        """Return what the sample says."""
        if self._stale:
            self._order()
        return _weighted_view(self._values, self._weights, self._moments) if self._values else None

    def _rescale(self, now: float) -> None:
        factor = exp(-self._alpha * (now - self._landmark))
        self._landmark = now
        self._heap = [(p * factor, value, weight * factor) for p, value, weight in self._heap if weight * factor > 0]
        heapify(self._heap)
        self._order()

    def _order(self) -> None:
        ordered = sorted((value, weight) for _, value, weight in self._heap)
        self._values = [value for value, _ in ordered]
        self._weights = [weight for _, weight in ordered]
        self._moments.sum_up(self._values, self._weights)
        self._stale = False
