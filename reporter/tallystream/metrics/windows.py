"""Samples whose values weigh the same: the last ones by number, the last ones by time, or any ones by chance.

What they keep, and what is read from it, is as in Dropwizard's reservoirs of the same names.
"""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING

from tallystream.metrics.reservoir import View, plain_view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class SlidingWindowReservoir:
    """The last `size` values. Not locked: its owner does that."""

    __slots__ = ("_values",)

    def __init__(self, size: int) -> None:
        self._values: deque[float] = deque(maxlen=size)

    def update(self, values: Iterable[float], now: float) -> None:  # noqa: ARG002 - their number counts, not their age
        """Take values."""
        self._values.extend(values)

    def values(self) -> list[float]:
        """Return what is kept, oldest first."""
        return list(self._values)

    def view(self, now: float) -> View | None:  # noqa: ARG002 - as above
        """Return what the sample says."""
        return plain_view(self.values())


class SlidingTimeWindowReservoir:
    """The values of the last `seconds`, of which the newest `size` at most. Not locked: its owner does that.

    Dropwizard's has no bound, which takes its users' memory when values come fast.
    """

    __slots__ = ("_seconds", "_values")

    def __init__(self, seconds: float, size: int) -> None:
        self._seconds = seconds
        self._values: deque[tuple[float, float]] = deque(maxlen=size)  # (monotonic seconds, value)

    def update(self, values: Iterable[float], now: float) -> None:
        """Take values that were seen at `now`, monotonic seconds, not before those taken so far."""
        self.take((now, value) for value in values)

    def take(self, stamped: Iterable[tuple[float, float]]) -> None:
        """Take (monotonic seconds, value) pairs. Those of several threads may be out of order by a moment."""
        self._values.extend(stamped)

    def values(self, now: float) -> list[float]:
        """Return what is kept at `now`: nothing that is older than the window."""
        kept, oldest = self._values, now - self._seconds
        while kept and kept[0][0] < oldest:
            kept.popleft()
        return [value for seen, value in kept if seen >= oldest]

    def view(self, now: float) -> View | None:
        """Return what the sample says at `now`."""
        return plain_view(self.values(now))


class UniformReservoir:
    """`size` of all values, each as likely to be kept as any other. Not locked: its owner does that.

    Algorithm R of Vitter, "Random Sampling with a Reservoir", ACM TOMS 11 (1985).

    Args:
        size: how many values are kept.
        random: gives numbers in [0, 1).
    """

    __slots__ = ("_random", "_seen", "_size", "_values")

    def __init__(self, size: int, random: Callable[[], float] = random.random) -> None:
        self._size, self._random = size, random
        self._seen = 0
        self._values: list[float] = []

    def update(self, values: Sequence[float], now: float) -> None:  # noqa: ARG002 - a value's age does not matter
        """Take values."""
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
        """Return what is kept."""
        return list(self._values)

    def view(self, now: float) -> View | None:  # noqa: ARG002 - as above
        """Return what the sample says."""
        return plain_view(self.values())
