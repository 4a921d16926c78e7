"""What all reporters share: what they report, their own metrics, and the thread that reports on a schedule."""

from __future__ import annotations

import random
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from tallystream.clock import Deadline
from tallystream.errors import ConfigError, DuplicateReporterError
from tallystream.registry import MetricRegistry
from tallystream.signals import SignalSafeEvent

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


@runtime_checkable
class Reportable(Protocol):
    """The registry of another library, such as `pyformance_compat.MetricsRegistry`."""

    @property
    def tallystream(self) -> MetricRegistry:
        """The registry that reports its metrics."""


def registry_of(given: MetricRegistry | Reportable | Any) -> MetricRegistry:
    """Return the registry to report.

    Raises:
        ConfigError: it is none.
    """
    if isinstance(given, MetricRegistry):
        return given
    if isinstance(given, Reportable):
        return given.tallystream
    raise ConfigError("registry", given, "give a MetricRegistry, or pyformance_compat's MetricsRegistry")


PREFIX = "tallystream.reporter."


class OwnMetrics:
    """The metrics of one reporter; several of one kind in a process share them.

    Args:
        registry: where they are.
        kind: the tag `reporter`, such as kafka or console.
    """

    def __init__(self, registry: MetricRegistry, kind: str) -> None:
        tags = {"reporter": kind}
        self._clock = registry.clock
        self.sent = registry.counter(PREFIX + "sent", tags=tags)
        self.failed = registry.counter(PREFIX + "failed", tags=tags)
        self.bytes = registry.counter(PREFIX + "bytes", tags=tags)
        self.duration = registry.timer(PREFIX + "duration", tags=tags)
        self.last_error = registry.gauge(PREFIX + "last_error", tags=tags)

    def fail(self) -> None:
        """Count a failure, and note when it was: epoch seconds."""
        self.failed.inc()
        self.last_error.set(self._clock.now().wall_ms / 1000)


class ReporterBase(ABC):
    """One report, its beginning and its end. Called by one thread at a time."""

    @abstractmethod
    def _open(self) -> None:
        """Acquire what is needed to report; safe to call again. May raise ConfigError."""

    @abstractmethod
    def _report(self) -> bool:
        """Make one report without waiting for it; return whether something is under way that needs attention."""

    @abstractmethod
    def _attend(self) -> bool:
        """Look after what is under way; return whether there is still something."""

    @abstractmethod
    def _report_and_wait(self, timeout: float, *, final: bool) -> bool:
        """Make one report and wait for it; return whether it arrived."""

    @abstractmethod
    def _close(self, deadline: Deadline) -> None:
        """Release what `_open` acquired; wait until the deadline at most."""

    @abstractmethod
    def _rest(self, deadline: Deadline) -> None:
        """Let go of what a fork would break; before a fork, while no report is made.

        Wait until the deadline at most.
        """

    @abstractmethod
    def _abandon(self) -> None:
        """Let go of everything that belongs to the parent process, without touching it; in the child of a fork."""


class Schedule:
    """Due at `first`, `first + interval`, `first + 2 * interval` … (seconds of a monotonic clock)."""

    __slots__ = ("_interval", "due")

    def __init__(self, first: float, interval: float) -> None:
        self._interval = interval
        self.due = first

    def take(self, now: float) -> bool:
        """Tell whether a report is due at `now`; if so, the next one is the first of the fixed times after `now`."""
        if now < self.due:
            return False
        missed = int((now - self.due) // self._interval)
        self.due += (missed + 1) * self._interval
        return True


ATTEND_EVERY = 0.05
"""Seconds between two looks at a report that is still under way."""


class ReportingThread:
    """A daemon thread that begins at once.

    The last report is made in this thread as well: `end` may be called by a signal's handler, which interrupted the
    application anywhere, also where it holds a metric's lock. A report made right there would wait for that forever.

    Args:
        name: the thread's.
        interval: seconds between two turns.
        monotonic: the clock of `interval`.
        turn: called often, with whether a report is due; returns whether one is under way, to be attended to soon. If
            it raises DuplicateReporterError the thread ends without a last report.
        last: makes the last report and ends, by the deadline that `end` was given; returns whether it arrived.
    """

    def __init__(
        self,
        name: str,
        interval: float,
        monotonic: Callable[[], float],
        turn: Callable[[Callable[[], bool]], bool | None],
        last: Callable[[Deadline], bool],
    ) -> None:
        self._interval, self._monotonic, self._turn, self._last = interval, monotonic, turn, last
        self._stopping = SignalSafeEvent()
        self._deadline = Deadline(0.0, monotonic)
        self._arrived = False
        self.has_ended = False  # by itself; in the child of a fork no thread is alive, but this is as it was
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Tell whether it has not ended yet."""
        return self._thread.is_alive()

    def end(self, deadline: Deadline) -> bool:
        """Have the last report made, and return by the deadline whether it arrived."""
        self._deadline = deadline
        self._stopping.set()
        self._thread.join(deadline.left())
        return self._arrived

    def _run(self) -> None:
        monotonic = self._monotonic
        schedule = Schedule(monotonic() + random.random() * self._interval, self._interval)
        in_flight = False
        while True:
            pause = max(schedule.due - monotonic(), 0)
            if self._stopping.wait(min(pause, ATTEND_EVERY) if in_flight else pause):
                break
            try:
                left = self._turn(lambda: schedule.take(monotonic()))
            except DuplicateReporterError:
                self.has_ended = True
                return
            in_flight = in_flight if left is None else left
        self._arrived = self._last(self._deadline)
