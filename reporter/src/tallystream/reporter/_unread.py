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
from itertools import chain, compress, count, repeat
from math import ceil, sqrt
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from tallystream.reporter._chances import FEW, Chooser, few_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST = 2
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
        # In rising order. Those of the last takes, as many as there are sizes, are each that of so many values.
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
        self._weights = array("d", map(mul, self._spread(), repeat(factor)))
        gone = bisect_right(self._weights, 0.0)
        del self._weights[:gone], self._values[:gone]
        self._count -= gone
        self._threshold *= factor

    def drawn(self) -> Iterator[Drawn]:
        """Yield all of them, the oldest first."""
        threshold, draw = self._threshold, self._random
        for value, weight in zip(self._values[: self._count], self._spread(), strict=True):
            yield Drawn(max(weight, threshold) / (1.0 - draw()), value, weight)

    def _spread(self) -> array[float]:
        """Give each value a weight of its own, and return these."""
        alone = len(self._weights) - len(self._sizes)
        self._weights[alone:] = array("d", chain.from_iterable(map(repeat, self._weights[alone:], self._sizes)))
        del self._sizes[:]
        return self._weights

    def _thin_out(self) -> None:
        weights, draw, old = self._spread(), self._random, self._threshold
        new, heavy = self._next_threshold()
        share = old / new  # the chance of those that are lighter than the old threshold
        seldom = bisect_left(weights, FEW * new, 0, heavy) if share < FEW else 0
        few = few_of(seldom, lambda at: max(weights[at], old) / new, draw)
        light = max(bisect_left(weights, old), seldom)
        stays = [draw() < share for _ in range(light - seldom)]
        stays += [draw() * new < weight for weight in weights[light:heavy]]

        def left(column: array[float]) -> array[float]:
            some = [column[at] for at in few]
            some += compress(column[seldom:heavy], stays)
            return array("d", some) + column[heavy : self._count]

        self._values, self._weights, self._threshold = left(self._values), left(weights), new
        self._count = len(self._values)

    def _next_threshold(self) -> tuple[float, int]:
        """Return the one at which as many stay as are wanted, probably, and from which place on all stay for certain.

        Those are not more than are wanted, each as heavy as the threshold or heavier: of a later place this is true as
        well, of an earlier one it is not.
        """
        weights, end = self._weights, self._count
        wanted, heavy = self._target - end, bisect_left(weights, self._threshold)
        before = heavy * self._threshold  # what those before `heavy` weigh
        while heavy < end:
            middle = (heavy + end) // 2
            more = before + sum(weights[heavy:middle])
            if weights[middle] * (wanted + middle) >= more:
                end = middle
            else:
                heavy, before = middle + 1, more + weights[middle]
        return before / (wanted + heavy), heavy
