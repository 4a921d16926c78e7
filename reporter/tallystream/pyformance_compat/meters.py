"""The classes of metrics: histogram, meter and timer, and the names of the others."""

from __future__ import annotations

from math import sqrt
from threading import RLock
from typing import TYPE_CHECKING, Any, Self

import msgspec

from tallystream.metrics import histogram, meter
from tallystream.pyformance_compat.counters import CallbackGauge, Counter, Gauge, Metric, SimpleGauge, log
from tallystream.pyformance_compat.stats import (
    DEFAULT_ALPHA,
    DEFAULT_SIZE,
    WALL,
    Clock,
    ExpDecayingSample,
    metric_clock,
)
from tallystream.record import Histogram as HistogramRecord
from tallystream.record import Meter as MeterRecord
from tallystream.record import Timer as TimerRecord
from tallystream.validation import as_number

if TYPE_CHECKING:
    from types import TracebackType

    from tallystream.pyformance_compat.stats import Snapshot

__all__ = ["CallbackGauge", "Counter", "Gauge", "Histogram", "Meter", "SimpleGauge", "Timer", "TimerContext"]

NO_MIN, NO_MAX = 2147483647.0, -2147483647.0
"""The min and max of pyformance if there are no values."""


class Histogram(Metric):
    """Count, sum, mean, variance, min and max of the values since `clear()`, and percentiles of a sample of them."""

    _min: float | None
    _max: float | None

    def __init__(self, size: int = DEFAULT_SIZE, alpha: float = DEFAULT_ALPHA, clock: Clock = WALL) -> None:
        self.clock = clock
        self.sample = ExpDecayingSample(size, alpha, clock)
        self.tallystream_reset()

    def add(self, value: float) -> None:
        """Add one value. One that Tallystream's histogram refuses, such as NaN, is skipped and logged.

        Raises:
            TypeError: `value` is not a number. The histogram is then unchanged.
        """
        value = as_number(value)
        try:
            self._reported.update(value)
        except ValueError as error:
            log.warning("%r skips a value: %s", self.tallystream_name, error)
            return
        with self._lock:
            self.sample.update(value)
            self._count += 1
            self._sum += value
            if self._min is None or value < self._min:
                self._min = value
            if self._max is None or value > self._max:
                self._max = value
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
        self._sum = self._mean = self._squares = 0.0
        self._min = self._max = None

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

    def tallystream_read(self, name: str, *, views: bool) -> HistogramRecord:
        """Return all values since the start of the process as a record struct."""
        return msgspec.structs.replace(self._reported.collect(views=views), name=name)

    def tallystream_reset(self) -> None:
        """Remove all values."""
        self._lock = RLock()  # a finalizer may update what this thread updates
        self._reported = histogram.Histogram("", {}, metric_clock(self.clock))
        self._clear()


class Meter(Metric):
    """A count with its rates per second: mean since `clear()`, and weighted over 1, 5 and 15 minutes."""

    _meter: meter.Meter

    def __init__(self, clock: Clock = WALL) -> None:
        self.clock = clock
        self.tallystream_reset()

    def mark(self, value: float = 1) -> None:
        """Add `value` events, a whole number that is not negative. Any other one is skipped and logged."""
        try:
            whole = int(value) if isinstance(value, float) and value.is_integer() else value
            with self._lock:
                self._meter.mark(whole)  # type: ignore[arg-type]  # it checks the type itself
        except (TypeError, ValueError) as error:
            log.warning("%r skips a mark: %s", self.tallystream_name, error)

    def clear(self) -> None:
        """Set the count and the rates to zero."""
        with self._lock:
            new = self._new()  # a signal handler may raise here, but not between the next two lines
            self._before += self._meter.count
            self._meter = new

    def tick(self) -> None:
        """Update the weighted rates, if five seconds have passed."""
        self._meter.rates()

    def get_count(self) -> float:
        """Return the count, as a float."""
        return float(self._meter.count)

    def get_mean_rate(self) -> float:
        """Return the events per second since the start or `clear()`, or 0 if no time has passed."""
        return self._meter.rates().mean_rate

    def get_one_minute_rate(self) -> float:
        """Return the events per second, weighted over a minute."""
        return self._meter.rates().m1_rate

    def get_five_minute_rate(self) -> float:
        """Return the events per second, weighted over 5 minutes."""
        return self._meter.rates().m5_rate

    def get_fifteen_minute_rate(self) -> float:
        """Return the events per second, weighted over 15 minutes."""
        return self._meter.rates().m15_rate

    def _new(self) -> meter.Meter:
        return meter.Meter("", {}, metric_clock(self.clock))

    def tallystream_dump(self) -> dict[str, Any]:
        """Return the values with pyformance's names."""
        rates = self._meter.rates()
        return {
            "count": self.get_count(),
            "15m_rate": rates.m15_rate,
            "5m_rate": rates.m5_rate,
            "1m_rate": rates.m1_rate,
            "mean_rate": rates.mean_rate,
        }

    def tallystream_read(self, name: str, *, views: bool) -> MeterRecord:
        """Return all events since the start of the process, and the rates, as a record struct."""
        with self._lock:
            current = self._meter.collect(views=views)
            return msgspec.structs.replace(current, name=name, count=self._before + current.count)

    def tallystream_reset(self) -> None:
        """Remove all events."""
        self._lock = RLock()  # a finalizer may update what this thread updates
        self._before = 0  # the count before the last `clear()`
        self._meter = self._new()


class Timer(Histogram):
    """A histogram of durations in seconds, and a `meter` of the calls. Its arguments are those of Histogram."""

    def __init__(self, *, size: int = DEFAULT_SIZE, alpha: float = DEFAULT_ALPHA, clock: Clock = WALL) -> None:
        self.meter = Meter(clock)
        super().__init__(size, alpha, clock)

    def get_mean_rate(self) -> float:
        """Return the calls per second since the start or `clear()`, or 0 if no time has passed."""
        return self.meter.get_mean_rate()

    def get_one_minute_rate(self) -> float:
        """Return the calls per second, weighted over a minute."""
        return self.meter.get_one_minute_rate()

    def get_five_minute_rate(self) -> float:
        """Return the calls per second, weighted over 5 minutes."""
        return self.meter.get_five_minute_rate()

    def get_fifteen_minute_rate(self) -> float:
        """Return the calls per second, weighted over 15 minutes."""
        return self.meter.get_fifteen_minute_rate()

    def time(self, *_: Any, **__: Any) -> TimerContext:
        """Start a duration. It ends at the end of the `with` block, or when `stop()` is called.

        pyformance's arguments are for its subclasses, and are ignored.
        """
        return TimerContext(self)

    def clear(self) -> None:
        """Remove all durations, and set the rates to zero."""
        super().clear()
        self.meter.clear()

    def _update(self, seconds: float) -> None:
        # If the clock was set back, the duration is negative and invalid.
        if seconds >= 0:
            self.add(seconds)
            self.meter.mark()

    def tallystream_dump(self) -> dict[str, Any]:
        """Return the values with pyformance's names."""
        median = self.get_snapshot().get_median()
        durations = super().tallystream_dump()
        return {**self.meter.tallystream_dump(), **durations, "sum": self.get_sum(), "50_percentile": median}

    def tallystream_read(self, name: str, *, views: bool) -> TimerRecord:
        """Return all durations since the start of the process, and the rates, as a record struct."""
        durations = msgspec.structs.asdict(super().tallystream_read(name, views=views))
        rates = msgspec.structs.asdict(self.meter.tallystream_read(name, views=views))
        return TimerRecord(**{**rates, **durations})

    def tallystream_reset(self) -> None:
        """Remove all durations and rates."""
        super().tallystream_reset()
        self.meter.tallystream_reset()


class TimerContext:
    """One duration: `with timer.time():`, or `context = timer.time()` and `context.stop()`."""

    def __init__(self, timer: Timer) -> None:
        self.timer = timer
        self._seconds = metric_clock(timer.clock).monotonic
        self.start_time = self._seconds()

    def stop(self) -> float:
        """Add the seconds since the start to the timer, and return them."""
        elapsed = self._seconds() - self.start_time
        self.timer._update(elapsed)  # noqa: SLF001 - what subclasses of pyformance's Timer override
        return elapsed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
