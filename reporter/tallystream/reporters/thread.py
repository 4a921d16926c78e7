"""The thread of a reporter, and the schedule of its reports."""

from __future__ import annotations

import threading
from random import SystemRandom
from typing import TYPE_CHECKING

from tallystream.clock import Deadline
from tallystream.errors import DuplicateReporterError
from tallystream.process.signals import SignalSafeEvent

if TYPE_CHECKING:
    from collections.abc import Callable


class Schedule:
    """The times of reports: `first`, `first + interval`, `first + 2 * interval` … (monotonic seconds)."""

    __slots__ = ("_interval", "due")

    def __init__(self, first: float, interval: float) -> None:
        self._interval = interval
        self.due = first

    def pop_due(self, now: float) -> bool:
        """Return whether a report is due at `now`. If so, set `due` to the first of these times after `now`."""
        if now < self.due:
            return False
        missed = int((now - self.due) // self._interval)
        self.due += (missed + 1) * self._interval
        return True


CHECK_INTERVAL_S = 0.05
"""Seconds between two checks of a report that is in progress."""


class ReportingThread:
    """A daemon thread that starts immediately.

    The last report is also made in this thread. A signal handler that calls `stop` may have interrupted code that holds
    a metric's lock, and a report in the handler's thread would wait for that lock forever.

    Args:
        name: the name of the thread.
        interval: seconds between two reports.
        monotonic: the clock.
        step: called when a report is due, and more often while one is in progress. It receives a function that returns
            whether a report is due. It returns whether one is in progress, or None if that is unchanged. If it raises
            DuplicateReporterError, the thread ends without a last report.
        last: makes the last report and closes the reporter by the deadline; returns whether the report was delivered.
    """

    def __init__(
        self,
        name: str,
        interval: float,
        monotonic: Callable[[], float],
        step: Callable[[Callable[[], bool]], bool | None],
        last: Callable[[Deadline], bool],
    ) -> None:
        self._monotonic, self._step, self._last = monotonic, step, last
        share = SystemRandom().random()  # instances of an application, and the children of a fork, may share a seed
        self._schedule = Schedule(monotonic() + share * interval, interval)
        self._stopping = SignalSafeEvent()
        self._deadline = Deadline(0.0, monotonic)
        self._delivered = False
        # Whether it ended by itself. Unlike the thread's `is_alive`, this stays unchanged in a forked child.
        self.has_ended = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def stop(self, deadline: Deadline) -> bool:
        """Trigger the last report, and return whether it was delivered by the deadline."""
        self._deadline = deadline
        self._stopping.set()
        self._thread.join(deadline.left())
        return self._delivered

    def _run(self) -> None:
        monotonic, schedule = self._monotonic, self._schedule
        in_progress = False
        while True:
            pause = max(schedule.due - monotonic(), 0)
            if self._stopping.wait(min(pause, CHECK_INTERVAL_S) if in_progress else pause):
                break
            try:
                result = self._step(lambda: schedule.pop_due(monotonic()))
            except DuplicateReporterError:
                self.has_ended = True
                return
            in_progress = in_progress if result is None else result
        self._delivered = self._last(self._deadline)
