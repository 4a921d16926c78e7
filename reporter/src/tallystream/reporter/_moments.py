"""Weighted mean and deviation of pairs that come and go, kept up to date: reading them takes no pass over all pairs."""

from __future__ import annotations

from math import isfinite, sqrt
from operator import mul

LOST = 1e-3
"""What may be left of a sum, as a share of the most it ever was, before rounding counts: then it is summed up anew."""

MOST_CHANGES = 4096
"""Changes after which it is summed up anew in any case."""


class Moments:
    """Sums of weights, distances and squared distances from what was the mean once. Not locked: its owner does that."""

    __slots__ = ("_changes", "_first", "_most", "_pivot", "_second", "_total")

    def __init__(self) -> None:
        self.sum_up([], [])

    def sum_up(self, values: list[float], weights: list[float]) -> None:
        """Begin anew with these pairs."""
        self._total = sum(weights)
        mean = sum(map(mul, weights, values)) / self._total if values else 0.0
        self._pivot = pivot = mean if isfinite(mean) else values[0]
        distances = [value - pivot for value in values]
        weighted = list(map(mul, weights, distances))
        self._first = sum(weighted)
        self._second = self._most = sum(map(mul, weighted, distances))
        self._changes = 0

    def add(self, value: float, weight: float) -> None:
        """Take a pair."""
        distance = value - self._pivot
        weighted = weight * distance
        self._total += weight
        self._first += weighted
        self._second += weighted * distance
        self._most = max(self._most, self._second)
        self._changes += 1

    def remove(self, value: float, weight: float) -> None:
        """Take a pair away that was added before."""
        distance = value - self._pivot
        weighted = weight * distance
        self._total -= weight
        self._first -= weighted
        self._second -= weighted * distance

    def read(self, values: list[float], weights: list[float]) -> tuple[float, float]:
        """Return mean and standard deviation, given the pairs as they are now."""
        shift = self._first / self._total
        square = self._second / self._total
        variance = square - shift * shift
        if self._changes and (
            not variance >= LOST * square or not self._second >= LOST * self._most or self._changes > MOST_CHANGES
        ):
            self.sum_up(values, weights)
            return self.read(values, weights)
        return self._pivot + shift, sqrt(max(variance, 0.0))
