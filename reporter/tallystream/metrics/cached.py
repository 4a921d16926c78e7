"""A function whose value is kept for a while: what a gauge asks when that costs much (Dropwizard's CachedGauge)."""

from __future__ import annotations

from math import inf, isfinite
from threading import Lock
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream.clock import Clock


class Cached:
    """Calls `function` once in `seconds` at most, from any number of threads, also when it raises.

    Whoever calls it while another thread is at work gets what was there before. After an error there is no value (None)
    until the time is over.

    Raises:
        ConfigError: the seconds are not above 0.
    """

    __slots__ = ("_clock", "_due", "_function", "_lock", "_seconds", "_value")

    def __init__(self, function: Callable[[], float | None], seconds: float, clock: Clock) -> None:
        if not isfinite(seconds) or seconds <= 0:
            raise ConfigError("cached_for", seconds, "give a number of seconds above 0")
        self._function, self._seconds, self._clock = function, seconds, clock
        self._due = -inf
        self._value: float | None = None
        self._lock = Lock()

    def __call__(self) -> float | None:
        """Return the kept value, or the function's where the kept one is too old and no other thread asks."""
        now = self._clock.monotonic()
        if now >= self._due and self._lock.acquire(blocking=False):
            try:
                self._due = now + self._seconds
                self._value = None
                self._value = self._function()
            finally:
                self._lock.release()
        return self._value

    def start_anew(self) -> None:
        """Forget the value, and make a new lock: for the child of a fork."""
        self._lock = Lock()
        self._due, self._value = -inf, None
