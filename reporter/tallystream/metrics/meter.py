"""The meter: a count of events and their rates, with Dropwizard's moving averages.

The formula is that of Unix load averages (Dropwizard Metrics, EWMA; Neil Gunther, "UNIX Load Average Part 1"): every
five seconds, rate += alpha * (events since the last tick / 5 s - rate), alpha = 1 - exp(-5 s / window).
"""

from __future__ import annotations

from math import exp
from threading import Lock
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from tallystream import record
from tallystream.metrics.base import Metric
from tallystream.metrics.counter import Counter
from tallystream.process.signals import run_locked
from tallystream.record import MAX_COUNT
from tallystream.validation import as_count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.clock import Clock

TICK = 5.0
"""Seconds between two ticks."""

WINDOWS = (60.0, 300.0, 900.0)
"""The windows of m1_rate, m5_rate and m15_rate, in seconds."""

_ALPHAS = tuple(1 - exp(-TICK / window) for window in WINDOWS)


class Rates(NamedTuple):
    """Events per second: the mean since the start, and the averages weighted over 1, 5 and 15 minutes."""

    mean_rate: float
    m1_rate: float
    m5_rate: float
    m15_rate: float


class Meter(Metric):
    """A count and its rates per second, as in Dropwizard: mean, and exponentially weighted over 1, 5 and 15 minutes.

    `due` is the time of the next tick of the rates, in monotonic seconds.
    """

    kind: ClassVar[str] = "meter"
    __slots__ = ("_counter", "_lock", "_monotonic", "_seen", "_start", "_weighted", "due")

    def __init__(self, name: str, tags: Mapping[str, str], clock: Clock) -> None:
        super().__init__(name, tags)
        self._monotonic = clock.monotonic
        self._counter = Counter(name, tags)
        self.reset_after_fork()

    def mark(self, n: int = 1) -> None:
        """Add `n` events, a non-negative whole number.

        Raises:
            ValueError: `n` is negative or above 2**63 - 1.
            TypeError: `n` is not a whole number.
        """
        if n.__class__ is not int:
            n = as_count(n)
        if n < 0 or n > MAX_COUNT:
            amount = "more than 2**63 - 1 events at once" if n > 0 else f"{n} events; events can't be taken back"
            raise ValueError(f"the meter {self.name!r} can't take {amount}")
        # Events that were counted before a tick is due belong to it, so comparing with the clock is enough. Another
        # thread, or code of this thread that a finalizer has interrupted, may be computing the rates.
        if self._monotonic() >= self.due:
            run_locked(self._lock, self._tick)
        self._counter.inc(n)

    def add_before_due(self, n: int) -> None:
        """Add `n` events that happened before the next tick was `due`: for a timer, which checks the clock itself."""
        self._counter.inc(n)

    @property
    def count(self) -> int:
        """The number of events in this process."""
        return self._counter.count

    def rates(self) -> Rates:
        """Return the four current rates."""
        return self._sample()[1]

    def collect(self, *, views: bool) -> record.Meter:  # noqa: ARG002 - used by distributions
        """Return count and rates as a record struct."""
        count, (mean, m1, m5, m15) = self._sample()
        return record.Meter(
            name=self.name, tags=self.tags, count=count, mean_rate=mean, m1_rate=m1, m5_rate=m5, m15_rate=m15
        )

    def reset_after_fork(self) -> None:
        """Reset the count and the rates to zero."""
        self._lock = Lock()
        self._counter.reset_after_fork()
        self._seen = 0  # the count at the last tick
        self._start = self._monotonic()
        self._weighted: tuple[float, float, float] | None = None  # the three averages, None before the first tick
        self.due = self._start + TICK

    def _sample(self) -> tuple[int, Rates]:
        now = self._monotonic()
        if now < self.due:
            count = self._counter.count
        else:
            with self._lock:
                count, now = self._tick()
        elapsed = now - self._start
        return count, Rates(count / elapsed if elapsed > 0 else 0.0, *(self._weighted or (0.0, 0.0, 0.0)))

    def _tick(self) -> tuple[int, float]:
        now, count = self._monotonic(), self._counter.count
        if now >= self.due:
            later = int((now - self.due) // TICK)
            instant = (count - self._seen) / TICK
            # All events belong to the first tick that is due. The others have none: one power replaces a long loop.
            first = [
                instant if self._weighted is None else self._weighted[i] + alpha * (instant - self._weighted[i])
                for i, alpha in enumerate(_ALPHAS)
            ]
            m1, m5, m15 = (rate * (1 - alpha) ** later for rate, alpha in zip(first, _ALPHAS, strict=True))
            # All at once: a signal's handler that raises can interrupt a call, but not these lines.
            self._seen = count
            self._weighted = (m1, m5, m15)
            self.due += (later + 1) * TICK
        return count, now
