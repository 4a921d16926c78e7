"""The decaying sample until somebody looks at it: no priority is drawn before, values are only thinned out. Pure.

A value of weight w has the priority w / u, u uniform in (0, 1], and the highest priorities are the sample. Which those
are matters to nobody yet, only that they are still there. So there is a threshold t, and what is kept are the values
with a priority above it, each by a chance of its own: min(1, w / t). Of what is kept nothing more is known than that,
so u is uniform below min(1, w / t), and the priority, when it is asked for, max(w, t) / u' with u' uniform in (0, 1].
When the threshold rises to t', a value stays with the chance min(1, max(w, t) / t').

Source: Duffield, Lund, Thorup, "Learn more, sample less: control of volume and variance in network measurement",
IEEE Transactions on Information Theory 2005 (threshold sampling); "Priority sampling for estimation of arbitrary
subset sums", Journal of the ACM 2007.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from itertools import compress, count, repeat
from math import ceil, sqrt
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MOST = 2.5
"""How many times as many values there are, when they are thinned out, as are to be left."""

GOLDEN = (sqrt(5) - 1) / 2
"""Multiples of it, without their whole parts, lie evenly spread however many there are."""

_numbers = count()


class Drawn(NamedTuple):
    """A value with its weight and the priority that chance gave it."""

    priority: float
    value: float
    weight: float


class Unread:
    """Values among which the `size` highest priorities are, but for a chance of one in ten million, or much less.

    Args:
        size: how many values the sample will have.
        random: gives numbers in [0, 1).
    """

    __slots__ = ("_random", "_room", "_target", "_threshold", "_values", "_weights")

    def __init__(self, size: int, random: Callable[[], float]) -> None:
        self._random = random
        # How many are kept varies by its root at most: six deviations, and some for a small number.
        self._target = size + ceil(6 * sqrt(size)) + 10
        # Samples that fill up together are not thinned out together, but evenly spread over the time that each takes.
        self._room = self._target + 1 + int(next(_numbers) * GOLDEN % 1 * (MOST - 1) * self._target)
        self._threshold = 0.0
        self._values, self._weights = array("d"), array("d")

    def __len__(self) -> int:
        return len(self._values)

    def take(self, values: Sequence[float], weight: float) -> None:
        """Take values that all have this weight, which is not below those of the values before."""
        if weight < self._threshold:
            chance, draw = weight / self._threshold, self._random
            values = [value for value in values if draw() < chance]
        self._values += array("d", values)
        self._weights += array("d", [weight]) * len(values)
        if len(self._values) >= self._room:
            self._thin_out()
            self._room = int(MOST * self._target)

    def rescale(self, factor: float) -> None:
        """Multiply all weights; what has none left is gone."""
        weights = array("d", map(mul, self._weights, repeat(factor)))
        self._values = array("d", compress(self._values, weights))
        self._weights = array("d", filter(None, weights))
        self._threshold *= factor

    def drawn(self) -> Iterator[Drawn]:
        """Yield all of them, the oldest first."""
        threshold, draw = self._threshold, self._random
        for value, weight in zip(self._values, self._weights, strict=True):
            yield Drawn(max(weight, threshold) / (1.0 - draw()), value, weight)

    def _thin_out(self) -> None:
        values, weights, draw, old = self._values, self._weights, self._random, self._threshold
        below = bisect_left(weights, old)  # their chance is that of the threshold
        new, heavy = self._next_threshold(below)
        share = old / new
        stays = [draw() < share for _ in range(below)]
        stays += [draw() * new < weight for weight in weights[below:heavy]]
        self._values = array("d", compress(values, stays)) + values[heavy:]
        self._weights = array("d", compress(weights, stays)) + weights[heavy:]
        self._threshold = new

    def _next_threshold(self, below: int) -> tuple[float, int]:
        """Return the one at which as many stay as are wanted, probably, and from which place on all stay for certain.

        Those are not more than are wanted, each as heavy as the threshold or heavier.
        """
        weights, left = self._weights, below * self._threshold
        heavy = len(weights)
        while wanted := self._target - (len(weights) - heavy):
            end = heavy
            new = (left + sum(weights[below:end])) / wanted
            heavy = bisect_left(weights, new, below, end)
            if heavy == end:
                return new, heavy
        return weights[heavy], heavy  # rounding made them as many as are wanted
