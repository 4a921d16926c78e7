"""The distribution of a value."""

from __future__ import annotations

import logging
from math import sqrt
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from tallystream.metrics import histogram
from tallystream.pyformance_compat.stats import (
    DEFAULT_ALPHA,
    DEFAULT_SIZE,
    WALL,
    Clock,
    ExpDecayingSample,
    metric_clock,
)

if TYPE_CHECKING:
    from tallystream import record
    from tallystream.pyformance_compat.stats import Snapshot

_log = logging.getLogger("tallystream.pyformance_compat")

NO_MIN, NO_MAX = 2147483647.0, -2147483647.0
"""The min and max of pyformance if there are no values."""


class Sample(Protocol):
    """A sample of the values, for the percentiles."""

    def update(self, value: float) -> None:
        """Add one value."""

    def get_snapshot(self) -> Snapshot:
        """Return the sampled values."""

    def clear(self) -> None:
        """Remove all values."""


class Histogram:
    """Count, sum, mean, variance, min and max of the values since `clear()`, and percentiles of a sample of them.

    The record has all values since the start of the process, since its counts must not fall.
    """

    _sum: float
    _min: float | None
    _max: float | None
    _mean: float
    _squares: float

    def __init__(
        self,
        size: int = DEFAULT_SIZE,
        alpha: float = DEFAULT_ALPHA,
        clock: Clock = WALL,
        sample: Sample | None = None,
    ) -> None:
        self.clock = clock
        self.sample: Sample = ExpDecayingSample(size, alpha, clock) if sample is None else sample
        self._name = ""
        self.tallystream_reset()

    def add(self, value: float) -> None:
        """Add one value. A value that Tallystream's histogram refuses, such as NaN, is skipped and logged.

        Raises:
            TypeError: `value` is not a number. The histogram is then unchanged.
        """
        try:
            self._reported.update(value)
        except ValueError as error:
            _log.warning("%r skips a value: %s", self._name, error)
            return
        if not isinstance(value, int | float):
            value = float(value)
        with self._lock:
            self.sample.update(value)
            self._count += 1
            self._sum += value
            self._min = value if self._min is None else min(self._min, value)
            self._max = value if self._max is None else max(self._max, value)
            # Welford's recurrence (Knuth, The Art of Computer Programming, volume 2, 4.2.2).
            distance = value - self._mean
            self._mean += distance / self._count
            self._squares += distance * (value - self._mean)

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._clear()

    def get_count(self) -> float:
        """Return the number of values, as a float."""
        return float(self._count)

    def get_sum(self) -> float:
        """Return the sum of the values."""
        return self._sum

    def get_max(self) -> float:
        """Return the highest value, or -2147483647.0 without values."""
        return NO_MAX if self._max is None else self._max

    def get_min(self) -> float:
        """Return the lowest value, or 2147483647.0 without values."""
        return NO_MIN if self._min is None else self._min

    def get_mean(self) -> float:
        """Return the mean, or 0 without values."""
        with self._lock:
            return self._sum / self._count if self._count else 0

    def get_var(self) -> float:
        """Return the sample variance (with the divisor count - 1), or 0 with fewer than two values."""
        with self._lock:
            return self._squares / (self._count - 1) if self._count > 1 else 0

    def get_stddev(self) -> float:
        """Return the square root of the variance."""
        return sqrt(self.get_var())

    def get_snapshot(self) -> Snapshot:
        """Return the sampled values."""
        with self._lock:
            return self.sample.get_snapshot()

    def _clear(self) -> None:
        self.sample.clear()
        self._count = 0
        self._sum = 0.0
        self._min = self._max = None
        self._mean = self._squares = 0.0

    def tallystream_register(self, name: str) -> None:
        """Store the name in the registry, for the log."""
        self._name = self._reported.name = name

    def tallystream_dump(self) -> dict[str, Any]:
        """Return the values with pyformance's names."""
        sampled = self.get_snapshot()
        return {
            "avg": self.get_mean(),
            "count": self.get_count(),
            "max": self.get_max(),
            "min": self.get_min(),
            "std_dev": self.get_stddev(),
            "75_percentile": sampled.get_75th_percentile(),
            "95_percentile": sampled.get_95th_percentile(),
            "99_percentile": sampled.get_99th_percentile(),
            "999_percentile": sampled.get_999th_percentile(),
        }

    def tallystream_read(self, name: str, tags: dict[str, str]) -> record.Histogram:
        """Return all values since the start of the process as a record struct."""
        return msgspec.structs.replace(self._reported.collect(views=True), name=name, tags=tags)

    def tallystream_retire(self, name: str, tags: dict[str, str]) -> record.Metric:
        """Return the same, for the next histogram of this name."""
        return self.tallystream_read(name, tags)

    def tallystream_reset(self) -> None:
        """Remove all values in the child of a fork."""
        self._lock = Lock()
        self._reported = histogram.Histogram(self._name, {}, metric_clock(self.clock))
        self._clear()
