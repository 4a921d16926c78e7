"""The two clocks of a process, behind one small protocol, so that a test can turn them by hand."""

from __future__ import annotations

import time
from typing import NamedTuple, Protocol


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
