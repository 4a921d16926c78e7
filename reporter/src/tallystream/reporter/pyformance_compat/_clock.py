"""Clocks as pyformance takes them: anything with `time()`, such as the module `time`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock(Protocol):
    """Where the seconds come from."""

    def time(self) -> float:
        """Return seconds since any beginning."""


WALL: Clock = time
"""The default, the module `time`, as in pyformance."""


def elapsing(clock: Clock) -> Callable[[], float]:
    """Return what gives the seconds to measure with: for the module `time`, a clock that nobody sets back."""
    return time.perf_counter if clock is time else clock.time
