"""The thread that reports: one turn at a time, on schedule, until it is told to end; then it makes the last report."""

from __future__ import annotations

import random
import threading
from typing import TYPE_CHECKING

from tallystream.deadline import Deadline
from tallystream.errors import DuplicateReporterError
from tallystream.reporters.schedule import Schedule
from tallystream.signals import SignalSafeEvent

if TYPE_CHECKING:
    from collections.abc import Callable

ATTEND_EVERY = 0.05
"""Seconds between two looks at a report that is still under way."""


class ReportingThread:
    """A daemon thread that begins at once.

    The last report is made in this thread as well: `end` may be called by a signal's handler, which interrupted the
    application anywhere, also where it holds a metric's lock. A report made right there would wait for that for ever.

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
        under_way = False
        while True:
            pause = max(schedule.due - monotonic(), 0)
            if self._stopping.wait(min(pause, ATTEND_EVERY) if under_way else pause):
                break
            try:
                left = self._turn(lambda: schedule.take(monotonic()))
            except DuplicateReporterError:
                self.has_ended = True
                return
            under_way = under_way if left is None else left
        self._arrived = self._last(self._deadline)
