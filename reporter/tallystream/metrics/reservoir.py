"""A sample of a distribution, for the instance's own view, and what is read from it.

Percentiles of a sample can't be merged over instances; what is merged is counted apart (count, sum, min, max, sketch).
The samples are in `decaying.py` and `windows.py`; `sampling.py` is how a histogram is told which one to keep.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate
from math import fsum, sqrt
from operator import mul
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    def update(self, values: list[float], now: float) -> None:
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
    passed = list(accumulate(weights))
    total = passed[-1]
    mean = fsum(map(mul, weights, values)) / total
    variance = fsum(weight * (value - mean) ** 2 for value, weight in ordered) / total
    return View(mean, sqrt(variance), *[values[bisect_left(passed, share * total)] for share in QUANTILES.values()])


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
            low, high, part = ordered[below - 1], ordered[below], position - below
            found.append(low + part * (high - low))
        else:
            found.append(ordered[0] if below < 1 else ordered[-1])
    return View(mean, deviation, *found)
