"""Samples of a distribution for the instance's own view: decaying, uniform, and the latest by number or by time.

Percentiles of a sample can't be merged over instances, so count, sum, min, max and sketch are kept separately. The
samples and their views are those of Dropwizard's reservoirs of the same names.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import deque
from heapq import heappush, heapreplace
from itertools import accumulate
from math import exp, fsum, log, sqrt
from operator import mul
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

QUANTILES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}


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


class Reservoir(Protocol):
    """A sample. Not thread-safe: the caller locks it."""

    def update(self, values: list[float], now: float) -> None:
        """Add values that were observed at `now`, monotonic seconds."""

    def view(self, now: float) -> View | None:
        """Return the statistics of the sample at `now`, or None if it is empty."""


def view(weighted: Sequence[tuple[float, float]]) -> View | None:
    """Return mean, standard deviation and quantiles of (value, weight) pairs, or None if there are none.

    The quantile q is the smallest value for which the values up to it have at least the share q of the weight. The
    deviation is that of a population (Dropwizard's WeightedSnapshot).
    """
    if not weighted:
        return None
    ordered = sorted(weighted)
    values, weights = [value for value, _ in ordered], [weight for _, weight in ordered]
    passed = list(accumulate(weights))
    total = passed[-1]
    mean = fsum(map(mul, weights, values)) / total
    variance = fsum(weight * (value - mean) ** 2 for value, weight in ordered) / total
    return View(mean, sqrt(variance), *[values[bisect_left(passed, share * total)] for share in QUANTILES.values()])


def plain_view(values: Sequence[float]) -> View | None:
    """Return mean, standard deviation and quantiles of values of equal weight, or None if there are none.

    As in Dropwizard's UniformSnapshot, the quantile q is at the position q * (n + 1), interpolated linearly between two
    values. The deviation is that of a sample, with the divisor n - 1.
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
            low, high, part = ordered[below - 1], ordered[below], position - below
            found.append(low + part * (high - low))
        else:
            found.append(ordered[0] if below < 1 else ordered[-1])
    return View(mean, deviation, *found)


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

    def __init__(self, size: int = 1028, alpha: float = 0.015, random: Callable[[], float] = random.random) -> None:
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

    def view(self, now: float) -> View | None:  # noqa: ARG002 - weights are relative to one another
        """Return the statistics of the sample."""
        return view(self.sample())


class SlidingWindowReservoir:
    """The last `size` values. Not thread-safe: the caller locks it."""

    __slots__ = ("_values",)

    def __init__(self, size: int) -> None:
        self._values: deque[float] = deque(maxlen=size)

    def update(self, values: Iterable[float], now: float) -> None:  # noqa: ARG002 - their number matters, not their age
        """Add values."""
        self._values.extend(values)

    def values(self) -> list[float]:
        """Return the sampled values, oldest first."""
        return list(self._values)

    def view(self, now: float) -> View | None:  # noqa: ARG002 - as above
        """Return the statistics of the sample."""
        return plain_view(self.values())


class SlidingTimeWindowReservoir:
    """The values of the last `seconds`, at most the newest `size` of them. Not thread-safe: the caller locks it.

    Dropwizard's reservoir has no size limit, and uses much memory at high rates.
    """

    __slots__ = ("_seconds", "_values")

    def __init__(self, seconds: float, size: int) -> None:
        self._seconds = seconds
        self._values: deque[tuple[float, float]] = deque(maxlen=size)  # (monotonic seconds, value)

    def update(self, values: Iterable[float], now: float) -> None:
        """Add values that were observed at `now`, monotonic seconds, not before the earlier ones."""
        self.take((now, value) for value in values)

    def take(self, stamped: Iterable[tuple[float, float]]) -> None:
        """Add (monotonic seconds, value) pairs. Those of several threads may be slightly out of order."""
        self._values.extend(stamped)

    def values(self, now: float) -> list[float]:
        """Return the sampled values at `now`, and remove those that are older than the window."""
        kept, oldest = self._values, now - self._seconds
        while kept and kept[0][0] < oldest:
            kept.popleft()
        return [value for seen, value in kept if seen >= oldest]

    def view(self, now: float) -> View | None:
        """Return the statistics of the sample at `now`."""
        return plain_view(self.values(now))


class UniformReservoir:
    """A uniform sample of `size` of all values. Not thread-safe: the caller locks it.

    Algorithm R of Vitter, "Random Sampling with a Reservoir", ACM TOMS 11 (1985).

    Args:
        size: the maximum number of values.
        random: returns numbers in [0, 1).
    """

    __slots__ = ("_random", "_seen", "_size", "_values")

    def __init__(self, size: int, random: Callable[[], float] = random.random) -> None:
        self._size, self._random = size, random
        self._seen = 0
        self._values: list[float] = []

    def update(self, values: Sequence[float], now: float) -> None:  # noqa: ARG002 - a value's age does not matter
        """Add values."""
        kept, size, draw, seen = self._values, self._size, self._random, self._seen
        for value in values:
            seen += 1
            if seen <= size:
                kept.append(value)
            else:
                place = int(draw() * seen)
                if place < size:
                    kept[place] = value
        self._seen = seen

    def values(self) -> list[float]:
        """Return the sampled values."""
        return list(self._values)

    def view(self, now: float) -> View | None:  # noqa: ARG002 - as above
        """Return the statistics of the sample."""
        return plain_view(self.values())
