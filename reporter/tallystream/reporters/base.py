"""The common parts of all reporters: their registry, their own metrics, and the thread that reports on a schedule."""

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
        ConfigError: `given` is not a registry.
    """
    if isinstance(given, MetricRegistry):
        return given
    if isinstance(given, Reportable):
        return given.tallystream
    raise ConfigError("registry", given, "give a MetricRegistry, or pyformance_compat's MetricsRegistry")


PREFIX = "tallystream.reporter."


class OwnMetrics:
    """The metrics of a reporter. Reporters of the same kind share them in a registry.

    Args:
        registry: the registry of the metrics.
        kind: the value of the tag `reporter`, such as kafka or console.
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
        """Count a failure, and set `last_error` to its time in epoch seconds."""
        self.failed.inc()
        self.last_error.set(self._clock.now().wall_ms / 1000)


class ReporterBase(ABC):
    """The steps of a reporter. They are called by one thread at a time."""

    @abstractmethod
    def _open(self) -> None:
        """Acquire what is needed to report; safe to call again. May raise ConfigError."""

    @abstractmethod
    def _report(self) -> bool:
        """Make one report without waiting for its delivery; return whether something is in progress."""

    @abstractmethod
    def _attend(self) -> bool:
        """Process what is in progress; return whether something still is."""

    @abstractmethod
    def _report_and_wait(self, timeout: float, *, final: bool) -> bool:
        """Make one report and wait for at most `timeout` seconds; return whether it was delivered."""

    @abstractmethod
    def _close(self, deadline: Deadline) -> None:
        """Release what `_open` acquired, within the deadline."""

    @abstractmethod
    def _rest(self, deadline: Deadline) -> None:
        """Release what a fork would break, within the deadline: before a fork, while no report is made."""

    @abstractmethod
    def _abandon(self) -> None:
        """Drop everything that belongs to the parent process, without closing it: in the child of a fork."""


class Schedule:
    """The times of reports: `first`, `first + interval`, `first + 2 * interval` … (monotonic seconds)."""

    __slots__ = ("_interval", "due")

    def __init__(self, first: float, interval: float) -> None:
        self._interval = interval
        self.due = first

    def take(self, now: float) -> bool:
        """Return whether a report is due at `now`. If so, set `due` to the first of these times after `now`."""
        if now < self.due:
            return False
        missed = int((now - self.due) // self._interval)
        self.due += (missed + 1) * self._interval
        return True


ATTEND_EVERY = 0.05
"""Seconds between two checks of a report that is in progress."""


class ReportingThread:
    """A daemon thread that starts immediately.

    The last report is also made in this thread. A signal handler that calls `end` may have interrupted code that holds
    a metric's lock, and a report in the handler's thread would wait for that lock forever.

    Args:
        name: the name of the thread.
        interval: seconds between two reports.
        monotonic: the clock.
        turn: called when a report is due, and more often while one is in progress. It receives a function that returns
            whether a report is due. It returns whether one is in progress, or None if that is unchanged. If it raises
            DuplicateReporterError, the thread ends without a last report.
        last: makes the last report and closes the reporter by the deadline; returns whether the report was delivered.
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
        self.has_ended = False  # whether it ended by itself; unlike `is_alive`, this stays unchanged in a forked child
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """Return whether the thread is running."""
        return self._thread.is_alive()

    def end(self, deadline: Deadline) -> bool:
        """Trigger the last report, and return whether it was delivered by the deadline."""
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
