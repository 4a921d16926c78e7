"""Exponentially weighted moving averages of a rate, ticking every five seconds, as Dropwizard's meters have them.

The formula is the one of Unix load averages (Dropwizard Metrics, EWMA; Neil Gunther, "UNIX Load Average Part 1"):
at each tick, rate += alpha * (events since the last tick / 5 s - rate), alpha = 1 - exp(-5 s / window).
"""

from __future__ import annotations

from math import exp

TICK = 5.0
"""Seconds between two ticks."""

WINDOWS = (60.0, 300.0, 900.0)
"""The windows of m1_rate, m5_rate and m15_rate, in seconds."""

_ALPHAS = tuple(1 - exp(-TICK / window) for window in WINDOWS)


class Averages:
    """The three averages of one meter, in events per second. Not locked: its owner does that."""

    __slots__ = ("_last_tick", "_rates", "_uncounted")

    def __init__(self, now: float) -> None:
        self._last_tick = now
        self._uncounted = 0
        self._rates: tuple[float, float, float] | None = None

    @property
    def due(self) -> float:
        """When the next tick is due, monotonic seconds."""
        return self._last_tick + TICK

    def take(self, n: int) -> None:
        """Take `n` events that came before the next tick was due."""
        self._uncounted += n

    def rates(self, now: float) -> tuple[float, float, float]:
        """Return the 1, 5 and 15 minute rates at `now`; zeros before the first tick."""
        if now - self._last_tick >= TICK:
            self._tick(now)
        return self._rates or (0.0, 0.0, 0.0)

    def _tick(self, now: float) -> None:
        ticks = int((now - self._last_tick) // TICK)
        instant = self._uncounted / TICK
        self._uncounted = 0
        self._last_tick += ticks * TICK
        # The first tick takes the events, the others found none: one power instead of a loop over a night.
        first = [
            instant if self._rates is None else self._rates[i] + alpha * (instant - self._rates[i])
            for i, alpha in enumerate(_ALPHAS)
        ]
        m1, m5, m15 = (rate * (1 - alpha) ** (ticks - 1) for rate, alpha in zip(first, _ALPHAS, strict=True))
        self._rates = (m1, m5, m15)
