"""Counters, gauges and histograms. A registry calls their methods `tallystream_…`."""

from __future__ import annotations

import logging
from math import sqrt
from operator import index
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from tallystream.metrics import counter, gauge, histogram
from tallystream.pyformance_compat.stats import (
    DEFAULT_ALPHA,
    DEFAULT_SIZE,
    WALL,
    Clock,
    ExpDecayingSample,
    Sample,
    metric_clock,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream import record
    from tallystream.pyformance_compat.stats import Snapshot

_log = logging.getLogger("tallystream.pyformance_compat")

NO_MIN, NO_MAX = 2147483647.0, -2147483647.0
"""The min and max of pyformance if there are no values."""


class Counter:
    """A number that can be incremented and decremented.

    It is reported as `counter`, whose sum over instances is exact, while it only grows by whole numbers. After the
    first `dec()`, `clear()`, negative number or fraction, it is reported as `updown`, with its complete value.
    """

    _counter: counter.Counter
    _updown: counter.UpDownCounter | None

    def __init__(self) -> None:
        self._name: str | None = None
        self._falls = False
        self.tallystream_reset()

    def inc(self, val: Any = 1) -> None:
        """Add `val`: any real number. One that Tallystream's counter refuses, such as NaN, is skipped and logged."""
        self._move(val, grows=True)

    def dec(self, val: Any = 1) -> None:
        """Subtract `val`."""
        self._move(-val, grows=False)

    def get_count(self) -> Any:
        """Return the value."""
        updown = self._updown
        return self._counter.count if updown is None else updown.value

    def clear(self) -> None:
        """Set the value to zero."""
        with self._lock:
            first = self._set(0)
        if first:
            self._say_that_it_fell()

    def _move(self, val: Any, *, grows: bool) -> None:
        try:
            with self._lock:
                if self._updown is None and grows and _is_count(val):
                    self._counter.inc(val)
                    return
                first = self._set(self.get_count(), val)
        except ValueError as error:
            _log.warning("%r skips a change: %s", self._name, error)
            return
        if first:
            self._say_that_it_fell()

    def _set(self, *values: Any) -> bool:
        # Replace the up-down counter with its value in one step, so that a snapshot never sees a counter that fell.
        updown = counter.UpDownCounter("", {})
        for value in values:
            updown.inc(value)
        first, self._updown, self._falls = not self._falls, updown, True
        return first

    def _say_that_it_fell(self) -> None:
        if self._name is not None:  # in a registry, so reported
            _log.warning(
                "the counter %r was decremented or cleared, so it is reported as updown from now on: its sum is over "
                "the living instances; use a separate counter for what only grows",
                self._name,
            )

    def tallystream_register(self, name: str) -> None:
        """Store the name in the registry, for the log."""
        self._name = name
        if self._falls:
            self._say_that_it_fell()

    def tallystream_dump(self) -> dict[str, Any]:
        """Return the values with pyformance's names."""
        return {"count": self.get_count()}

    def tallystream_read(self, name: str, tags: dict[str, str]) -> record.Metric | None:
        """Return the value as a record struct."""
        metric = self._counter if self._updown is None else self._updown
        return msgspec.structs.replace(metric.collect(views=True), name=name, tags=tags)

    def tallystream_retire(self, name: str, tags: dict[str, str]) -> record.Metric | None:
        """Return the count before the counter fell, for the next counter of this name."""
        return msgspec.structs.replace(self._counter.collect(views=True), name=name, tags=tags)

    def tallystream_reset(self) -> None:
        """Count from zero in the child of a fork. A counter that fell remains an `updown`."""
        self._lock = Lock()
        self._counter = counter.Counter("", {})
        self._updown = counter.UpDownCounter("", {}) if self._falls else None


def _is_count(val: Any) -> bool:
    try:
        return index(val) >= 0
    except TypeError:
        return False


class Gauge:
    """The base class of gauges. A subclass defines `get_value()`."""

    def get_value(self) -> Any:
        """Return the current value.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError

    def tallystream_register(self, name: str) -> None:
        """Do nothing: a gauge does not need its name."""

    def tallystream_dump(self) -> dict[str, Any]:
        """Return the value with pyformance's name."""
        return {"value": self.get_value()}

    def tallystream_read(self, name: str, tags: dict[str, str]) -> record.Metric | None:
        """Return the value as a record struct, or None for NaN, pyformance's value of a gauge that is not set."""

        def value() -> Any:
            found = self.get_value()
            return found if found == found else None  # noqa: PLR0124 - only NaN differs from itself, of any type

        return gauge.Gauge(name, tags, value).read()

    def tallystream_retire(self, name: str, tags: dict[str, str]) -> None:
        """Return None: a gauge has no count that must continue."""

    def tallystream_reset(self) -> None:
        """Keep the value in the child of a fork: only the application knows whether it is still valid."""


class CallbackGauge(Gauge):
    """A gauge that calls `callback` for its value."""

    def __init__(self, callback: Callable[[], Any]) -> None:
        super().__init__()
        self.callback = callback

    def get_value(self) -> Any:
        """Return the result of the callback. Raises its errors."""
        return self.callback()


class SimpleGauge(Gauge):
    """A gauge that is set. Its value is NaN before, if no other is given."""

    def __init__(self, value: Any = float("nan")) -> None:
        super().__init__()
        self._value = value

    def get_value(self) -> Any:
        """Return the value that was set last."""
        return self._value

    def set_value(self, value: Any) -> None:
        """Set the value."""
        self._value = value


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
