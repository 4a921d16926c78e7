"""How long something takes, and how often it happens."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, ClassVar, ParamSpec, TypeVar

from tallystream.reporter import record
from tallystream.reporter.histogram import Histogram
from tallystream.reporter.meter import Meter, Rates

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from tallystream.reporter.clock import Clock

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Timing:
    """One stretch of time, from `with` to its end; `elapsed` has it in seconds afterwards, None before."""

    __slots__ = ("_start", "_timer", "elapsed")

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._start = 0.0
        self.elapsed: float | None = None

    def __enter__(self) -> Self:
        self._start = self._timer.clock.monotonic()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.elapsed = self._timer.clock.monotonic() - self._start
        self._timer.update(self.elapsed)


class Timer(Histogram):
    """A histogram of durations in seconds, with the rates of the calls.

    `with timer.time():` takes a stretch of code, `@timer` every call of a function; one that raises counts too.
    """

    kind: ClassVar[str] = "timer"
    __slots__ = ("_meter", "clock")

    def __init__(self, name: str, tags: Mapping[str, str], clock: Clock) -> None:
        self.clock = clock
        self._meter = Meter(name, tags, clock)
        super().__init__(name, tags, clock)

    def update(self, value: float) -> None:
        """Take one duration, in seconds.

        Raises:
            ValueError: it is negative, NaN or infinite.
        """
        if value < 0:
            raise ValueError(f"the timer {self.name!r} can't take {value} s; a duration is not negative")
        super().update(value)
        self._meter.mark()

    def time(self) -> Timing:
        """Return a context manager that takes the time between its two ends."""
        return Timing(self)

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """Return `function`, each call of which is timed."""

        @wraps(function)
        def timed(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with Timing(self):
                return function(*args, **kwargs)

        return timed

    def rates(self) -> Rates:
        """Return how many calls come per second: mean, m1, m5, m15."""
        return self._meter.rates()

    def read(self) -> record.Timer:
        """Return the histogram and the rates in the record's form."""
        return record.Timer(**self._fields()(), **self._meter.rates()._asdict())

    def capture(self) -> Callable[[], record.Metric | None]:
        """Hold the present values; they are sorted and encoded later."""
        fields, rates = self._fields(), self._meter.rates()
        return lambda: record.Timer(**fields(), **rates._asdict())

    def start_anew(self) -> None:
        """Forget all durations and rates."""
        super().start_anew()
        self._meter.start_anew()
