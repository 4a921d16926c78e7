"""The clocks of a process, as a protocol that tests can implement, and deadlines for several waits."""

from __future__ import annotations

import time
from threading import TIMEOUT_MAX, Thread
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock(Protocol):
    """The source of the time: a monotonic clock and a wall clock."""

    def monotonic(self) -> float:
        """Return seconds that never decrease, from an arbitrary zero."""

    def wall_ms(self) -> int:
        """Return the time of the wall clock, epoch milliseconds."""


class SystemClock:
    """The clocks of the operating system."""

    monotonic = staticmethod(time.perf_counter)

    def wall_ms(self) -> int:
        """Return the time of the wall clock, epoch milliseconds."""
        return time.time_ns() // 1_000_000


SYSTEM_CLOCK = SystemClock()


class Deadline:
    """The moment `seconds` from now, by the given monotonic clock."""

    __slots__ = ("_end", "_monotonic", "seconds")

    def __init__(self, seconds: float, monotonic: Callable[[], float]) -> None:
        self.seconds, self._monotonic = seconds, monotonic
        self._end = monotonic() + seconds

    def left(self) -> float:
        """Return the seconds until the deadline, 0 if it has passed, and at most what a lock or a thread can wait."""
        return min(max(self._end - self._monotonic(), 0.0), TIMEOUT_MAX)


def call_within(deadline: Deadline, call: Callable[[], bool]) -> bool:
    """Run `call` in its own thread and return its result, or False if it has not ended by the deadline.

    In that case it ends in the background. An error that it raises before the deadline is raised here. If the
    interpreter is shutting down and starts no more threads, `call` runs in this thread, without a deadline.
    """
    results: list[bool] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - it is raised in the waiting thread
            errors.append(error)

    thread = Thread(target=run, name="tallystream-call", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return call()
    thread.join(deadline.left())
    for error in errors:
        raise error
    return any(results)
