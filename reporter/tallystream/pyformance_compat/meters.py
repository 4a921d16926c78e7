"""The metric classes of pyformance: the meter and the timer, and the names of the others."""

from __future__ import annotations

import logging
from functools import cache
from math import isfinite
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

import msgspec

from tallystream import record
from tallystream.metrics import counter, meter
from tallystream.pyformance_compat._values import CallbackGauge, Counter, Gauge, Histogram, SimpleGauge
from tallystream.pyformance_compat.stats import DEFAULT_ALPHA, DEFAULT_SIZE, WALL, Clock, Sample, metric_clock

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["CallbackGauge", "Counter", "Gauge", "Histogram", "Meter", "SimpleGauge", "Timer", "TimerContext"]

_log = logging.getLogger("tallystream.pyformance_compat")


class Meter:
    """A count with its rates per second: mean since `clear()`, and weighted over 1, 5 and 15 minutes.

    The record has all events since the start of the process, since its counts must not fall.
    """

    _rest: float

    def __init__(self, clock: Clock = WALL) -> None:
        self.clock = clock
        self._name = ""
        self.tallystream_reset()

    def mark(self, value: float = 1) -> None:
        """Add `value` events.

        A fraction or a negative number changes `get_count()` immediately. It changes the rates and the record as soon
        as its sum with later values is a positive whole number or more. A value that Tallystream's meter refuses, such
        as NaN, is skipped and logged.
        """
        try:
            with self._lock:
                rest = self._rest + value
                whole = _whole(rest)
                self._meter.mark(whole)
                self._rest = rest - whole
                self._reported.inc(whole)
        except (ValueError, OverflowError) as error:
            _log.warning("%r skips a mark: %s", self._name, error)

    def clear(self) -> None:
        """Set the count and the rates to zero."""
        with self._lock:
            self._clear()

    def tick(self) -> None:
        """Update the weighted rates, if five seconds have passed."""
        self._meter.rates()

    def get_count(self) -> float:
        """Return the count, as a float."""
        with self._lock:
            return float(self._meter.count + self._rest)

    def get_mean_rate(self) -> float:
        """Return the events per second since the start or `clear()`, or 0 if no time has passed."""
        return self._meter.rates().mean_rate or 0

    def get_one_minute_rate(self) -> float:
        """Return the events per second, weighted over a minute."""
        return self._meter.rates().m1_rate or 0

    def get_five_minute_rate(self) -> float:
        """Return the events per second, weighted over 5 minutes."""
        return self._meter.rates().m5_rate or 0

    def get_fifteen_minute_rate(self) -> float:
        """Return the events per second, weighted over 15 minutes."""
        return self._meter.rates().m15_rate or 0

    def _clear(self) -> None:
        self._meter = meter.Meter(self._name, {}, metric_clock(self.clock))
        self._rest = 0

    def tallystream_register(self, name: str) -> None:
        """Store the name in the registry, for the log."""
        self._name = self._meter.name = name

    def tallystream_dump(self) -> dict[str, Any]:
        """Return the values with pyformance's names."""
        return {"count": self.get_count(), **self.tallystream_rates()}

    def tallystream_rates(self) -> dict[str, Any]:
        """Return the rates with pyformance's names."""
        return {
            "15m_rate": self.get_fifteen_minute_rate(),
            "5m_rate": self.get_five_minute_rate(),
            "1m_rate": self.get_one_minute_rate(),
            "mean_rate": self.get_mean_rate(),
        }

    def tallystream_read(self, name: str, tags: dict[str, str]) -> record.Meter:
        """Return all events since the start of the process, and the rates, as a record struct."""
        return msgspec.structs.replace(
            self._meter.collect(views=True), name=name, tags=tags, count=self._reported.count
        )

    def tallystream_retire(self, name: str, tags: dict[str, str]) -> record.Metric:
        """Return the same, for the next meter of this name."""
        return self.tallystream_read(name, tags)

    def tallystream_reset(self) -> None:
        """Count from zero in the child of a fork."""
        self._lock = Lock()
        self._reported = counter.Counter("", {})
        self._clear()


def _whole(events: float) -> int:
    if not isfinite(events):  # an integer that is too large for a float raises OverflowError
        raise ValueError(f"{events} is not a finite number")
    return max(int(events), 0)


class Timer(Histogram):
    """A histogram of durations in seconds, and a meter of the calls.

    Args:
        threshold: seconds. A longer duration sends the signal `call_too_long`, if blinker is installed.
        size, alpha, sample: as in Histogram.
        clock: the source of the time.
        sink: its method `add` receives all durations.
    """

    def __init__(  # noqa: PLR0917 - pyformance's order
        self,
        threshold: float | None = None,
        size: int = DEFAULT_SIZE,
        alpha: float = DEFAULT_ALPHA,
        clock: Clock = WALL,
        sink: Any = None,
        sample: Sample | None = None,
    ) -> None:
        self.meter = Meter(clock=clock)
        self.sink = sink
        self.threshold = threshold
        super().__init__(size, alpha, clock, sample)

    @property
    def hist(self) -> Histogram:
        """The histogram of the durations: the timer itself."""
        return self

    def get_mean_rate(self) -> float:
        """Return the calls per second since the start or `clear()`."""
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

    def time(self, *args: Any, **kwargs: Any) -> TimerContext:
        """Start a duration. It ends at the end of the `with` block, or when `stop()` is called.

        The arguments are sent with the signal: positional ones as `args`, the others by name.
        """
        return TimerContext(self, self.meter.clock, *args, **kwargs)

    def clear(self) -> None:
        """Remove all durations, and set the rates to zero."""
        super().clear()
        self.meter.clear()

    def _update(self, seconds: float) -> None:
        # If the clock was set back, the duration is negative and invalid.
        if seconds >= 0:
            self.add(seconds)
            self.meter.mark()
            if self.sink:
                self.sink.add(seconds)

    def tallystream_dump(self) -> dict[str, Any]:
        """Return the values with pyformance's names."""
        durations = super().tallystream_dump()
        spread = {name: durations.pop(name) for name in ("count", "max", "min", "std_dev")}
        return {
            "avg": durations.pop("avg"),
            "sum": self.get_sum(),
            **spread,
            **self.meter.tallystream_rates(),
            "50_percentile": self.get_snapshot().get_median(),
            **durations,
        }

    def tallystream_read(self, name: str, tags: dict[str, str]) -> record.Timer:
        """Return all durations since the start of the process, and the rates, as a record struct."""
        rates = self.meter.tallystream_read(name, tags)
        return record.Timer(
            **msgspec.structs.asdict(super().tallystream_read(name, tags)),
            mean_rate=rates.mean_rate,
            m1_rate=rates.m1_rate,
            m5_rate=rates.m5_rate,
            m15_rate=rates.m15_rate,
        )

    def tallystream_reset(self) -> None:
        """Remove all durations and rates in the child of a fork."""
        super().tallystream_reset()
        self.meter.tallystream_reset()


class TimerContext:
    """One duration: `with timer.time():`, or `context = timer.time()` and `context.stop()`."""

    def __init__(self, timer: Timer, clock: Clock, *args: Any, **kwargs: Any) -> None:
        self.clock = clock
        self.timer = timer
        self.args, self.kwargs = args, kwargs
        self._seconds = metric_clock(clock).monotonic
        self.start_time = self._seconds()

    def stop(self) -> float:
        """Add the seconds since the start to the timer, and return them."""
        elapsed = self._seconds() - self.start_time
        self.timer._update(elapsed)  # noqa: SLF001 - what subclasses of pyformance's Timer override
        if self.timer.threshold and self.timer.threshold < elapsed:
            _send_signal(self, elapsed)
        return elapsed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _send_signal(context: TimerContext, elapsed: float) -> None:
    _, call_too_long = _signals()
    if call_too_long is not None:
        more = {"args": context.args} if context.args else {}
        call_too_long.send(context.timer, elapsed=elapsed, **more, **context.kwargs)


@cache
def _signals() -> tuple[Any, Any]:
    """Return `timer_signals` and `call_too_long`, or twice None if blinker is not installed, as in pyformance."""
    try:
        from blinker import Namespace  # imported on first use: it imports asyncio
    except ImportError:
        return None, None
    signals = Namespace()
    return signals, signals.signal("call_too_long")


def __getattr__(name: str) -> Any:
    if name in ("timer_signals", "call_too_long"):
        return _signals()[name == "call_too_long"]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
