"""The sample of a histogram, which is not thread-safe, and its percentiles."""

from __future__ import annotations

import random
from functools import partialmethod
from typing import TYPE_CHECKING, Protocol

from tallystream.clock import SYSTEM_CLOCK
from tallystream.metrics.sampling import DecayingReservoir, quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tallystream.clock import Clock as MetricClock

__all__ = ["ExpDecayingSample", "Snapshot"]


class Clock(Protocol):
    """The source of the time."""

    def time(self) -> float:
        """Return seconds since any start."""


class _GivenClock:
    def __init__(self, clock: Clock) -> None:
        self.monotonic: Callable[[], float] = clock.time

    def wall_ms(self) -> int:
        return int(self.monotonic() * 1000)


def metric_clock(clock: Clock | None) -> MetricClock:
    """Return the clock for a metric: the given one, or else a monotonic one."""
    return SYSTEM_CLOCK if clock is None else _GivenClock(clock)


class Snapshot:
    """Sorted values, in `values`."""

    def __init__(self, values: Iterable[float]) -> None:
        self.values = sorted(values)

    def get_size(self) -> int:
        """Return the number of values."""
        return len(self.values)

    def get_percentile(self, percentile: float) -> float:
        """Return the value at a share from 0 to 1, interpolated between two values (`quantile`); 0 without values.

        Raises:
            ValueError: the share is not from 0 to 1.
        """
        if not 0 <= percentile <= 1:
            raise ValueError(f"{percentile} is not in [0..1]")
        return quantile(self.values, percentile) if self.values else 0

    get_median = partialmethod(get_percentile, 0.5)
    get_75th_percentile = partialmethod(get_percentile, 0.75)
    get_95th_percentile = partialmethod(get_percentile, 0.95)
    get_99th_percentile = partialmethod(get_percentile, 0.99)
    get_999th_percentile = partialmethod(get_percentile, 0.999)


DEFAULT_SIZE = 1028
DEFAULT_ALPHA = 0.015

_NO_WEIGHT = 745.0
"""The logarithm of a weight from which on earlier values have none: exp(-745) is the smallest float."""


class ExpDecayingSample:
    """At most `size` values, of which recent ones weigh more, by the factor exp(`alpha`) a second.

    After a pause so long that all values have lost their weight, about half a day, only the last one is kept.
    """

    def __init__(self, size: int = DEFAULT_SIZE, alpha: float = DEFAULT_ALPHA, clock: Clock | None = None) -> None:
        self._size, self._alpha = size, alpha
        self._seconds = metric_clock(clock).monotonic
        self.clear()

    def clear(self) -> None:
        """Remove all values."""
        # As in pyformance, the sample is drawn with the random numbers of the application.
        self._reservoir = DecayingReservoir(self._size, self._alpha, random.random)
        self._last: tuple[float, float] | None = None  # (value, seconds)

    def get_size(self) -> int:
        """Return the number of sampled values."""
        return len(self._reservoir.sample())

    def update(self, value: float) -> None:
        """Add one value."""
        last, now = self._last, self._seconds()
        if last is not None and self._alpha * (now - last[1]) > _NO_WEIGHT:
            self.clear()
            self._reservoir.update([last[0]], last[1])
        self._reservoir.update([value], now)
        self._last = value, now

    def get_snapshot(self) -> Snapshot:
        """Return the sampled values."""
        return Snapshot(value for value, _ in self._reservoir.sample())
