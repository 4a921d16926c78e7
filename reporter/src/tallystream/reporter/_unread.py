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
from bisect import bisect_left, bisect_right
from itertools import accumulate, chain, count, repeat
from math import ceil, sqrt
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from tallystream.reporter._chances import FEW, Chooser, few_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST = 3
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

    __slots__ = (
        *("_chooser", "_count", "_random", "_room", "_sizes"),
        *("_target", "_threshold", "_values", "_weights"),
    )

    def __init__(self, size: int, random: Callable[[], float]) -> None:
        self._random = random
        # How many are kept varies by its root at most: six deviations, and some for a small number.
        self._target = size + ceil(6 * sqrt(size)) + 10
        # Samples that fill up together are not thinned out together, but evenly spread over the time that each takes.
        self._room = self._target + 1 + int(next(_numbers) * GOLDEN % 1 * (MOST - 1) * self._target)
        self._threshold = 0.0
        self._chooser = Chooser(random)
        self._count = 0
        self._values = array("d")  # the oldest first; behind `_count` of them is room for more
        # What came together has one weight: each of these, in rising order, is that of so many values.
        self._weights, self._sizes = array("d"), array("i")

    def __len__(self) -> int:
        return self._count

    def take(self, values: list[float], weight: float) -> None:
        """Take values that all have this weight, which is not below those of the values before."""
        if weight < self._threshold:
            values = self._chooser.some_of(values, weight / self._threshold)
        if not values:  # as a rule, where they come fast
            return
        begin, size = self._count, len(values)
        self._count = end = begin + size
        if end > len(self._values):  # an array grows by a sixteenth only, and is copied each time
            more = max(end, min(2 * begin, self._room)) - len(self._values)
            self._values.frombytes(bytes(more * self._values.itemsize))
        self._values[begin:end] = array("d", values)
        self._weights.append(weight)
        self._sizes.append(size)
        if end >= self._room:
            self._thin_out()
            self._room = int(MOST * self._target)

    def rescale(self, factor: float) -> None:
        """Multiply all weights; what has none left is gone."""
        self._weights = array("d", map(mul, self._weights, repeat(factor)))
        gone = bisect_right(self._weights, 0.0)
        without = sum(self._sizes[:gone])
        self._count -= without
        del self._weights[:gone], self._sizes[:gone], self._values[:without]
        self._threshold *= factor

    def drawn(self) -> Iterator[Drawn]:
        """Yield all of them, the oldest first."""
        threshold, draw = self._threshold, self._random
        weights = chain.from_iterable(map(repeat, self._weights, self._sizes))
        for value, weight in zip(self._values[: self._count], weights, strict=True):
            yield Drawn(max(weight, threshold) / (1.0 - draw()), value, weight)

    def _thin_out(self) -> None:
        values, weights, sizes = self._values, self._weights, self._sizes
        draw, old = self._random, self._threshold
        new, heavy = self._next_threshold()
        ends = list(accumulate(sizes[:heavy], initial=0))  # how many values are before each weight
        seldom = bisect_left(weights, FEW * new, 0, heavy) if old < FEW * new else 0

        def weight_of(at: int) -> float:
            return weights[bisect_right(ends, at) - 1]

        few = few_of(ends[seldom], lambda at: max(weight_of(at), old) / new, draw)
        others = list(chain.from_iterable(map(repeat, weights[seldom:heavy], sizes[seldom:heavy])))
        some = [at for at, weight in enumerate(others) if draw() * new < max(weight, old)]

        left = [values[at] for at in few] + [values[ends[seldom] + at] for at in some]
        self._values = array("d", left) + values[ends[heavy] : self._count]
        self._weights = array("d", [*map(weight_of, few), *[others[at] for at in some]]) + weights[heavy:]
        self._sizes = array("i", [1]) * len(left) + sizes[heavy:]
        self._count = len(self._values)
        self._threshold = new

    def _next_threshold(self) -> tuple[float, int]:
        """Return the one at which as many stay as are wanted, probably, and from which weight on all stay for certain.

        Those are not more than are wanted, each as heavy as the threshold or heavier: of a later place this is true as
        well, of an earlier one it is not.
        """
        weights, sizes = self._weights, self._sizes
        heavy, end = bisect_left(weights, self._threshold), len(weights)
        lighter = sum(sizes[:heavy])  # how many values are before `heavy`, and what they weigh
        before = lighter * self._threshold
        wanted = self._target - self._count
        while heavy < end:
            middle = (heavy + end) // 2
            number = lighter + sum(sizes[heavy:middle])
            more = before + sum(map(mul, weights[heavy:middle], sizes[heavy:middle]))
            if weights[middle] * (wanted + number) >= more:
                end = middle
            else:
                heavy, lighter = middle + 1, number + sizes[middle]
                before = more + weights[middle] * sizes[middle]
        return before / (wanted + lighter), heavy
