"""The classes of metrics: histogram, meter and timer, and the names of the others."""

from __future__ import annotations

from math import sqrt
from threading import RLock
from typing import TYPE_CHECKING, Any, ClassVar, Self

from tallystream.metrics import histogram, meter, timer
from tallystream.pyformance_compat.counters import CallbackGauge, Counter, Gauge, Metric, SimpleGauge, log
from tallystream.pyformance_compat.stats import DEFAULT_ALPHA, DEFAULT_SIZE, ExpDecayingSample, metric_clock
from tallystream.validation import as_number

if TYPE_CHECKING:
    from types import TracebackType

    from tallystream.pyformance_compat.stats import Clock, Snapshot

__all__ = ["CallbackGauge", "Counter", "Gauge", "Histogram", "Meter", "SimpleGauge", "Timer", "TimerContext"]


class Histogram(Metric):
    """Count, sum, mean, variance, min and max of the values since `clear()`, and percentiles of a sample of them."""

    _min: float
    _max: float
    _tallystream_class: ClassVar[type[histogram.Histogram]] = histogram.Histogram

    def __init__(self, size: int = DEFAULT_SIZE, alpha: float = DEFAULT_ALPHA, clock: Clock | None = None) -> None:
        self.tallystream = self._tallystream_class("", {}, metric_clock(clock))
        self.sample = ExpDecayingSample(size, alpha, clock)
        self._lock = RLock()  # a finalizer may update what this thread updates
        self.clear()

    def add(self, value: float) -> None:
        """Add one value. One that Tallystream's histogram refuses, such as NaN, is skipped and logged.

        Raises:
            TypeError: `value` is not a number. The histogram is then unchanged.
        """
        value = as_number(value)
        try:
            self.tallystream.update(value)
        except ValueError as error:
            log.warning("%r skips a value: %s", self.tallystream_name, error)
            return
        with self._lock:
            self.sample.update(value)
            self._count += 1
            self._sum += value
            self._min = value if self._count == 1 else min(value, self._min)
            self._max = value if self._count == 1 else max(value, self._max)
            # Welford's recurrence (Knuth, The Art of Computer Programming, volume 2, 4.2.2).
            distance = value - self._mean
            self._mean += distance / self._count
            self._squares += distance * (value - self._mean)

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self.sample.clear()
            self._count = 0
            self._sum = self._mean = self._squares = 0.0
            self._min, self._max = 2147483647.0, -2147483647.0  # pyformance's

    def get_count(self) -> float:
        """Return the number of values, as a float."""
        return float(self._count)

    def get_sum(self) -> float:
        """Return the sum of the values."""
        return self._sum

    def get_max(self) -> float:
        """Return the highest value, or -2147483647.0 without values."""
        return self._max

    def get_min(self) -> float:
        """Return the lowest value, or 2147483647.0 without values."""
        return self._min

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

    def tallystream_reset(self) -> None:
        """Remove all values."""
        self._lock = RLock()
        self.tallystream.reset_after_fork()
        self.clear()


class Rated(Metric):
    """What a meter and a timer have in common: rates per second, mean since `clear()`, and weighted."""

    _meter: meter.Meter
    """It counts since `clear()`."""

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

    def tallystream_dump(self) -> dict[str, Any]:
        """Return count and rates with pyformance's names."""
        rates = self._meter.rates()
        return {
            "count": float(self._meter.count),
            "15m_rate": rates.m15_rate,
            "5m_rate": rates.m5_rate,
            "1m_rate": rates.m1_rate,
            "mean_rate": rates.mean_rate,
        }


class Meter(Rated):
    """A count with its rates per second: mean since `clear()`, and weighted over 1, 5 and 15 minutes."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = metric_clock(clock)
        self.tallystream = meter.Meter("", {}, self._clock)
        self.clear()

    def mark(self, value: float = 1) -> None:
        """Add `value` events, a whole number that is not negative. Any other one is skipped and logged."""
        try:
            whole: Any = int(value) if isinstance(value, float) and value.is_integer() else value
            self.tallystream.mark(whole)
        except (TypeError, ValueError) as error:
            log.warning("%r skips a mark: %s", self.tallystream_name, error)
        else:
            self._meter.mark(whole)

    def clear(self) -> None:
        """Set the count and the rates to zero."""
        self._meter = meter.Meter("", {}, self._clock)

    def tick(self) -> None:
        """Update the weighted rates, if five seconds have passed."""
        self._meter.rates()

    def get_count(self) -> float:
        """Return the count, as a float."""
        return float(self._meter.count)

    def tallystream_reset(self) -> None:
        """Remove all events."""
        self.tallystream.reset_after_fork()
        self.clear()


class Timer(Histogram, Rated):
    """A histogram of durations in seconds, and the rates of the calls. Its arguments are those of Histogram."""

    _tallystream_class = timer.Timer

    def __init__(self, *, size: int = DEFAULT_SIZE, alpha: float = DEFAULT_ALPHA, clock: Clock | None = None) -> None:
        self._clock = metric_clock(clock)
        super().__init__(size, alpha, clock)

    def time(self, *_: Any, **__: Any) -> TimerContext:
        """Start a duration. It ends at the end of the `with` block, or when `stop()` is called.

        pyformance's arguments are for its subclasses, and are ignored.
        """
        return TimerContext(self)

    def clear(self) -> None:
        """Remove all durations, and set the rates to zero."""
        super().clear()
        self._meter = meter.Meter("", {}, self._clock)

    def _update(self, seconds: float) -> None:
        # If the clock was set back, the duration is negative and invalid.
        if seconds >= 0:
            self.add(seconds)
            self._meter.mark()

    def tallystream_dump(self) -> dict[str, Any]:
        """Return the values with pyformance's names."""
        median = self.get_snapshot().get_median()
        rates = Rated.tallystream_dump(self)
        return {**rates, **super().tallystream_dump(), "sum": self.get_sum(), "50_percentile": median}


class TimerContext:
    """One duration: `with timer.time():`, or `context = timer.time()` and `context.stop()`."""

    def __init__(self, timer: Timer) -> None:
        self.timer = timer
        self._seconds = timer._clock.monotonic  # noqa: SLF001 - of the same module
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
