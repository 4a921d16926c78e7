"""The sample that decays, Dropwizard's default: recent values are more likely to be in it."""

from __future__ import annotations

import random
from bisect import bisect_left
from heapq import heapify, heappush, heapreplace
from math import exp
from operator import attrgetter
from typing import TYPE_CHECKING

import msgspec

from tallystream.reporter._moments import Moments
from tallystream.reporter._unread import Unread
from tallystream.reporter.reservoir import View, weighted_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

RESCALE_BEYOND = 54.0
"""The exponent of a weight beyond which the landmark moves, far from overflow: an hour of the default's decay."""

TOGETHER = 256
"""Values that wait for the next look at the sample."""

MANY = 64
"""Values that come at once, beyond which the sample is sorted when it is read, not kept in order."""


class _Kept(msgspec.Struct, order=True, gc=False):
    """A value of a sample. A thousand of them are no work for the garbage collector, as tuples would be."""

    priority: float
    value: float
    weight: float


_priority = attrgetter("priority")


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

    __slots__ = (
        *("_alpha", "_heap", "_landmark", "_least", "_loose", "_moments", "_random"),
        *("_room", "_size", "_stale", "_unread", "_values", "_waiting", "_weights"),
    )

    def __init__(
        self, now: float, size: int = 1028, alpha: float = 0.015, random: Callable[[], float] = random.random
    ) -> None:
        self._size, self._alpha, self._landmark = size, alpha, now
        self._random = random
        self._unread: Unread | None = Unread(size, random)  # all there is, until somebody looks
        self._waiting: list[tuple[float, Sequence[float]]] = []  # (when they were seen, values)
        self._room = TOGETHER  # for how many more may wait
        self._heap: list[_Kept] = []
        self._loose = False  # whether it is in no order, and may have more than `size`
        self._least = 0.0  # what a priority must exceed to stay, or less
        # The same values in rising order, and their weights: few values enter the sample, so order is cheaply kept.
        self._values: list[float] = []
        self._weights: list[float] = []
        self._moments = Moments()
        self._stale = False

    def update(self, values: list[float], now: float) -> None:
        """Take values that were seen at `now`, monotonic seconds. They are worked in when it is read, or many wait."""
        if self._unread is not None:
            self._unread.take(values, self._weight(now))
            return
        self._waiting.append((now, values))
        self._room -= len(values)
        if self._room <= 0:
            self._work_in()

    def sample(self) -> list[tuple[float, float]]:
        """Return the sampled values with their weights, in no order."""
        self._work_in()
        self._tighten()
        return [(kept.value, kept.weight) for kept in self._heap]

    def view(self, now: float) -> View | None:  # noqa: ARG002 - weights are relative to one another
        """Return what the sample says."""
        self._work_in()
        self._tighten()
        if self._stale:
            self._order()
        return weighted_view(self._values, self._weights, self._moments) if self._values else None

    def _weight(self, now: float) -> float:
        exponent = self._alpha * (now - self._landmark)
        if exponent >= RESCALE_BEYOND:
            self._rescale(now)
            exponent = 0.0
        return exp(exponent)

    def _work_in(self) -> None:
        if self._unread is not None:
            self._heap = [_Kept(*drawn) for drawn in self._unread.drawn()]
            self._loose = self._stale = True
            self._unread = None
        waiting, self._waiting, self._room = self._waiting, [], TOGETHER
        many = sum(len(values) for _, values in waiting) > MANY
        if not many:
            self._tighten()
        for now, values in waiting:
            weight = self._weight(now)
            if many:
                self._append(values, weight)
            else:
                self._insert(values, weight)
        if len(self._heap) >= self._size + TOGETHER:
            self._tighten()

    def _append(self, values: Sequence[float], weight: float) -> None:
        draw, least = self._random, self._least
        priorities = [weight / (1.0 - draw()) for _ in values]
        self._heap += [_Kept(p, value, weight) for p, value in zip(priorities, values, strict=True) if p > least]
        self._loose = self._stale = True

    def _tighten(self) -> None:
        if self._loose:
            # What rises is a heap as well, and most of it does so since the last time: less work than single steps.
            self._heap.sort(key=_priority)
            del self._heap[: -self._size]
            self._least = self._heap[0].priority if len(self._heap) == self._size else 0.0
            self._loose = False

    def _insert(self, values: Iterable[float], weight: float) -> None:
        heap, size, draw = self._heap, self._size, self._random
        for value in values:
            priority = weight / (1.0 - draw())
            if len(heap) < size:
                heappush(heap, _Kept(priority, value, weight))
            elif priority > heap[0].priority:
                self._leave(heapreplace(heap, _Kept(priority, value, weight)))
            else:
                continue
            if not self._stale:
                place = bisect_left(self._values, value)
                self._values.insert(place, value)
                self._weights.insert(place, weight)
                self._moments.add(value, weight)

    def _leave(self, kept: _Kept) -> None:
        if not self._stale:
            place = self._weights.index(kept.weight, bisect_left(self._values, kept.value))  # among equal values
            del self._values[place], self._weights[place]
            self._moments.remove(kept.value, kept.weight)

    def _rescale(self, now: float) -> None:
        factor = exp(-self._alpha * (now - self._landmark))
        self._landmark, self._least = now, 0.0
        if self._unread is not None:
            self._unread.rescale(factor)
        self._heap = [
            _Kept(kept.priority * factor, kept.value, kept.weight * factor)
            for kept in self._heap
            if kept.weight * factor > 0
        ]
        heapify(self._heap)
        self._stale = True

    def _order(self) -> None:
        ordered = sorted((kept.value, kept.weight) for kept in self._heap)
        self._values = [value for value, _ in ordered]
        self._weights = [weight for _, weight in ordered]
        self._moments.sum_up(self._values, self._weights)
        self._stale = False
