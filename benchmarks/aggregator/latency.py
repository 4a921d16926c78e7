"""Latency per update: from its producer's time to the first sum that includes it. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from benchmarks.aggregator.load import Taken
    from benchmarks.aggregator.watch import Arrival


class Latencies(NamedTuple):
    """`seconds` of each update in its order, NaN for one that no sum included; `odd` sums were of no moment.

    An exact aggregator's sum of a metric is always what the first k updates of it add up to, for some k. Another value
    is one that stood for a moment only: an old reading taken out and the new one not yet put in.
    """

    seconds: NDArray[np.float64]
    odd: int


def latencies(
    taken: Taken, base: NDArray[np.int64], sent: NDArray[np.float64], arrivals: Iterable[Arrival]
) -> Latencies:
    """Return when each update was first in a sum, less when it was sent.

    `base` is the sum of each metric before the first update, `sent` the time of each, in epoch seconds. Counters only
    grow, so the value of a sum tells how many updates of its metric are in it: the same measure for every side.
    """
    metrics = len(base)
    numbers = [(metric - taken.first) % metrics for metric in range(metrics)]
    reached = [base[metric] + np.cumsum(taken.steps[begin::metrics]) for metric, begin in enumerate(numbers)]
    times = [sent[begin::metrics] for begin in numbers]
    seconds = np.full(len(sent), math.nan)
    views = [seconds[begin::metrics] for begin in numbers]
    seen, odd = [0] * metrics, 0
    for time, metric, total in arrivals:
        many = int(np.searchsorted(reached[metric], total, side="right"))
        if many and reached[metric][many - 1] != total:
            odd += 1
        begin = seen[metric]
        if many > begin:
            views[metric][begin:many] = time - times[metric][begin:many]
            seen[metric] = many
    return Latencies(seconds, odd)


def percentile(values: NDArray[np.float64], percent: float) -> float:
    """Return the smallest value that at least `percent` % of them do not exceed; NaN where there is none."""
    if not len(values):
        return math.nan
    ordered = np.sort(values)
    return float(ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)])
