"""The sample of a distribution for the instance's own view: Dropwizard's exponentially decaying reservoir.

Percentiles of a sample can't be merged over instances, so count, sum, min, max and sketch are kept separately.
"""

from __future__ import annotations

from bisect import bisect_left
from heapq import heappush, heapreplace
from itertools import accumulate
from math import exp, fsum, log, sqrt
from operator import mul
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from tallystream.metric_types import QUANTILES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


_draw = Random().random  # not that of the application, whose seeded numbers stay the same


class View(NamedTuple):
    """The statistics of a sample."""

    mean: float
    stddev: float
    p50: float
    p75: float
    p95: float
    p98: float
    p99: float
    p999: float


def weighted_view(pairs: Sequence[tuple[float, float]]) -> View | None:
    """Return mean, standard deviation and quantiles of (value, weight) pairs, or None if there are none.

    The quantile q is the smallest value for which the values up to it have at least the share q of the weight. The
    deviation is that of a population (Dropwizard's WeightedSnapshot).
    """
    if not pairs:
        return None
    ordered = sorted(pairs)
    values, weights = [value for value, _ in ordered], [weight for _, weight in ordered]
    passed = list(accumulate(weights))
    total = passed[-1]
    mean = fsum(map(mul, weights, values)) / total
    variance = fsum(weight * (value - mean) ** 2 for value, weight in ordered) / total
    return View(mean, sqrt(variance), *[values[bisect_left(passed, share * total)] for share in QUANTILES.values()])


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value at the rank share * (n + 1) of n sorted values, at least one, interpolated between two values.

    It is one of the definitions in R. J. Hyndman and Y. Fan, "Sample Quantiles in Statistical Packages", The American
    Statistician 50 (1996): type 6.
    """
    rank = share * (len(ordered) + 1)
    below = int(rank)
    if below < 1:
        return ordered[0]
    if below >= len(ordered):
        return ordered[-1]
    low, high = ordered[below - 1 : below + 1]
    return low + (rank - below) * (high - low)


class DecayingReservoir:
    """A forward-decaying priority sample, Dropwizard's default: 1028 values, alpha 0.015, about the last five minutes.

    Formula: Cormode et al., "Forward Decay: A Practical Time Decay Model for Streaming Systems", ICDE 2009: the weight
    of a value is exp(alpha * time), its priority weight / u with u uniform in (0, 1]. The values with the highest
    priorities stay. The logarithms of both are stored, to avoid overflow. Not thread-safe: the caller locks it.

    Args:
        size: the maximum number of values.
        alpha: the decay of weights, by the factor exp(-alpha) each second.
        random: returns numbers in [0, 1).
    """

    __slots__ = ("_alpha", "_heap", "_random", "_size")

    def __init__(self, size: int = 1028, alpha: float = 0.015, random: Callable[[], float] = _draw) -> None:
        self._size, self._alpha, self._random = size, alpha, random
        self._heap: list[tuple[float, float, float]] = []  # log(priority), log(weight), value

    def update(self, values: Iterable[float], now: float) -> None:
        """Add values that were observed at `now`, monotonic seconds."""
        heap, size, draw, weight = self._heap, self._size, self._random, self._alpha * now
        for value in values:
            priority = weight - log(1.0 - draw())
            if len(heap) < size:
                heappush(heap, (priority, weight, value))
            elif priority > heap[0][0]:
                heapreplace(heap, (priority, weight, value))

    def sample(self) -> list[tuple[float, float]]:
        """Return the sampled values with their weights, unordered. The largest weight is 1."""
        newest = max((weight for _, weight, _ in self._heap), default=0.0)
        return [(value, exp(weight - newest)) for _, weight, value in self._heap]

    def view(self) -> View | None:
        """Return the statistics of the sample, or None if it is empty."""
        return weighted_view(self.sample())
