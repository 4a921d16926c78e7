"""How long something takes, and how often it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

from tallystream.reporter import record
from tallystream.reporter.pyformance_compat._clock import WALL, Clock, elapsing
from tallystream.reporter.pyformance_compat.meters.histogram import Histogram, Sample
from tallystream.reporter.pyformance_compat.meters.meter import Meter
from tallystream.reporter.pyformance_compat.stats.samples import DEFAULT_ALPHA, DEFAULT_SIZE

if TYPE_CHECKING:
    from types import TracebackType

    from tallystream.reporter.pyformance_compat._distribution import Distribution
    from tallystream.reporter.pyformance_compat.stats.snapshot import Snapshot


class Sink(Protocol):
    """What is told every duration, beside the timer."""

    def add(self, seconds: float) -> None:
        """Take one duration."""


class Timer:
    """A histogram of durations in seconds, and a meter of the calls.

    Args:
        threshold: seconds; a longer stretch sends the signal `call_too_long`, where blinker is installed.
        size, alpha, sample: of the histogram.
        clock: where the seconds come from.
        sink: told every duration, by its method `add`.
    """

    def __init__(  # noqa: PLR0917 - pyformance's order
        self,
        threshold: float | None = None,
        size: int = DEFAULT_SIZE,
        alpha: float = DEFAULT_ALPHA,
        clock: Clock = WALL,
        sink: Sink | None = None,
        sample: Sample | None = None,
    ) -> None:
        self.meter = Meter(clock=clock)
        self.hist = Histogram(size=size, alpha=alpha, clock=clock, sample=sample)
        self.sink = sink
        self.threshold = threshold

    def get_count(self) -> float:
        """Return how many durations were taken, as a float."""
        return self.hist.get_count()

    def get_sum(self) -> float:
        """Return the sum of the durations."""
        return self.hist.get_sum()

    def get_max(self) -> float:
        """Return the longest."""
        return self.hist.get_max()

    def get_min(self) -> float:
        """Return the shortest."""
        return self.hist.get_min()

    def get_mean(self) -> float:
        """Return the mean duration."""
        return self.hist.get_mean()

    def get_stddev(self) -> float:
        """Return the standard deviation."""
        return self.hist.get_stddev()

    def get_var(self) -> float:
        """Return the variance."""
        return self.hist.get_var()

    def get_snapshot(self) -> Snapshot:
        """Return the durations that the sample keeps."""
        return self.hist.get_snapshot()

    def get_mean_rate(self) -> float:
        """Return the calls per second since the beginning."""
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
        """Begin a stretch of time; it ends with the `with` block, or with `stop()`.

        What is given here is sent with the signal: positional arguments as `args`, the others by their names.
        """
        return TimerContext(self, self.meter.clock, *args, **kwargs)

    def clear(self) -> None:
        """Forget all durations and rates."""
        self.hist.clear()
        self.meter.clear()

    def _update(self, seconds: float) -> None:
        # A clock that is set back gives a negative duration: nothing is known of this one.
        if seconds >= 0:
            self.hist.add(seconds)
            self.meter.mark()
            if self.sink:
                self.sink.add(seconds)

    def tallystream_join(self, name: str, earlier: Any) -> None:
        """Count on in the record from what the one before left."""
        self.hist.tallystream_join(name, earlier)

    def tallystream_leave(self) -> Distribution:
        """Return everything ever taken, and forget it."""
        return self.hist.tallystream_leave()

    def tallystream_read(self, name: str, tags: dict[str, str]) -> record.Metric | None:
        """Return the present values in the record's form."""
        return record.Timer(name=name, tags=tags, **self.hist.tallystream_fields(), **self.meter.tallystream_rates())

    def tallystream_start_anew(self) -> None:
        """Forget all durations and rates, with new locks: for the child of a fork."""
        self.hist.tallystream_start_anew()
        self.meter.tallystream_start_anew()


class TimerContext:
    """One stretch of time: `with timer.time():`, or `context = timer.time()` and `context.stop()`."""

    def __init__(self, timer: Timer, clock: Clock, *args: Any, **kwargs: Any) -> None:
        self.clock = clock
        self.timer = timer
        self.args, self.kwargs = args, kwargs
        self._seconds = elapsing(clock)
        self.start_time = self._seconds()

    def stop(self) -> float:
        """Take the time since the beginning, and return it in seconds."""
        elapsed = self._seconds() - self.start_time
        self.timer._update(elapsed)  # noqa: SLF001 - what subclasses of pyformance's Timer override
        if self.timer.threshold and self.timer.threshold < elapsed:
            _tell(self, elapsed)
        return elapsed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _tell(context: TimerContext, elapsed: float) -> None:
    from tallystream.reporter.pyformance_compat.meters._signal import call_too_long

    if call_too_long is not None:
        more = {"args": context.args} if context.args else {}
        call_too_long.send(context.timer, elapsed=elapsed, **more, **context.kwargs)


def __getattr__(name: str) -> Any:
    # blinker imports asyncio: only who asks for the signal pays for it.
    if name in ("call_too_long", "timer_signals"):
        from tallystream.reporter.pyformance_compat.meters import _signal

        return getattr(_signal, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
