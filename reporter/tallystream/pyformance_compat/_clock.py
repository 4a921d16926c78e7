"""Clocks as in pyformance: any object with `time()`, such as the module `time`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from tallystream.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream.clock import Clock as MetricClock


class Clock(Protocol):
    """The source of the time."""

    def time(self) -> float:
        """Return seconds since any start."""


WALL: Clock = time
"""The default, the module `time`, as in pyformance."""


class _GivenClock:
    def __init__(self, clock: Clock) -> None:
        self.monotonic: Callable[[], float] = clock.time

    def wall_ms(self) -> int:
        return int(self.monotonic() * 1000)


def metric_clock(clock: Clock) -> MetricClock:
    """Return the clock for a metric. For the module `time`, it is a monotonic clock."""
    return SYSTEM_CLOCK if clock is time else _GivenClock(clock)
