"""The timer: a histogram of durations and a meter of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from tallystream import record
from tallystream.metrics.calls import observe_calls
from tallystream.metrics.histogram import Histogram
from tallystream.metrics.meter import Meter, Rates
from tallystream.process.signals import run_locked
from tallystream.validation import LARGEST, as_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from tallystream.clock import Clock

_F = TypeVar("_F", bound="Callable[..., Any]")


class Timing:
    """Measures the duration of a `with` block.

    `elapsed` is the duration in seconds, or None before the end of the block.
    """

    __slots__ = ("_start", "_timer", "elapsed")

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._start = 0.0
        self.elapsed: float | None = None

    def __enter__(self) -> Self:
        self._start = self._timer.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        now = self._timer.monotonic()
        self.elapsed = now - self._start
        self._timer.add(self.elapsed, now)


class Timer(Histogram):
    """A histogram of durations in seconds, with the rates of the calls.

    `with timer.time():` measures a block of code, `@timer` each call of a function. Those that raise count too.
    """

    kind: ClassVar[str] = "timer"
    __slots__ = ("_meter", "monotonic")

    def __init__(self, name: str, tags: Mapping[str, str], clock: Clock) -> None:
        self.monotonic = clock.monotonic
        self._meter = Meter(name, tags, clock)
        super().__init__(name, tags, clock)

    def update(self, value: float) -> None:
        """Add one duration, in seconds.

        Raises:
            ValueError: it is negative, NaN, infinite or above 1e150.
            TypeError: it is not a real number.
        """
        self.add(value, self.monotonic())

    def add(self, value: float, now: float) -> None:
        """Add one duration that ended at `now`, by the timer's monotonic clock. Raises the errors of `update`."""
        if value.__class__ is not float:
            value = as_number(value)
        if not 0 <= value <= LARGEST:
            raise ValueError(
                f"the timer {self.name!r} can't take {value} s; a duration is not negative, and 1e150 s at most"
            )
        # Buffered durations ended before this tick was due, so they are counted before the rates are updated. The next
        # call does it if another thread has the lock, or code of this thread that a finalizer has interrupted.
        if now >= self._meter.due:
            run_locked(self._lock, self._current_rates)
        self._append(value)

    def time(self) -> Timing:
        """Return a context manager that measures its block and adds the duration."""
        return Timing(self)

    def __call__(self, function: _F) -> _F:
        """Return `function` with each call timed, from its first step to its end, as `observe_calls` says."""
        observed: _F = observe_calls(function, self.time)
        return observed

    def rates(self) -> Rates:
        """Return the calls per second: mean, m1, m5, m15."""
        with self._lock:
            return self._current_rates()

    def _current_rates(self) -> Rates:
        self._flush()
        return self._meter.rates()

    def collect(self, *, views: bool) -> record.Timer:
        """Return the histogram and the rates as a record struct, with the view if `views`."""
        with self._lock:
            rates = self._current_rates()
            found = self._record(record.Timer, views=views)
        found.mean_rate, found.m1_rate, found.m5_rate, found.m15_rate = rates
        return found

    def reset_after_fork(self) -> None:
        """Remove all durations and rates."""
        super().reset_after_fork()
        self._meter.reset_after_fork()

    def _flush(self) -> int:
        flushed = super()._flush()
        if flushed:
            self._meter.add_before_due(flushed)
        return flushed
