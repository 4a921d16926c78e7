"""When a report is due: at fixed times, each at most once, and the ones that were missed are not made up for."""

from __future__ import annotations


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
