"""The clocks of a process behind one small protocol, so that a test can set them, and deadlines for several waits."""

from __future__ import annotations

import time
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Instant(NamedTuple):
    """One moment on both clocks: seconds of the monotonic clock, epoch milliseconds of the wall clock."""

    monotonic: float
    wall_ms: int


class Clock(Protocol):
    """Where the time comes from."""

    def monotonic(self) -> float:
        """Return seconds that never go back, from an arbitrary zero."""

    def now(self) -> Instant:
        """Return this moment on both clocks."""


class SystemClock:
    """The clocks of the operating system."""

    monotonic = staticmethod(time.perf_counter)

    def now(self) -> Instant:
        """Return this moment on both clocks."""
        return Instant(self.monotonic(), time.time_ns() // 1_000_000)


SYSTEM_CLOCK = SystemClock()


class Deadline:
    """The moment `seconds` from now, by the given monotonic clock."""

    __slots__ = ("_end", "_monotonic", "seconds")

    def __init__(self, seconds: float, monotonic: Callable[[], float]) -> None:
        self.seconds, self._monotonic = seconds, monotonic
        self._end = monotonic() + seconds

    def left(self) -> float:
        """Return the seconds until then, 0 when it has passed."""
        return max(self._end - self._monotonic(), 0.0)


def call_within(deadline: Deadline, call: Callable[[], bool]) -> bool:
    """Make the call in a thread of its own, and return its result, or False if it has not ended at the deadline.

    It then ends in the background. An error that it raises in time is raised here. While the interpreter ends, and
    takes no more threads, the call is made in this thread, without a deadline.
    """
    results: list[bool] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is waited for
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
