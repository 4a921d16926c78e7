"""An exponentially weighted moving average of a rate."""

from __future__ import annotations

from math import exp

from tallystream.pyformance_compat._clock import WALL, Clock, metric_clock


class ExpWeightedMovingAvg:
    """Events per second, weighted over `period` minutes. Not thread-safe: the caller locks it.

    Reading the rate ticks when `interval` seconds have passed since the last tick. A tick after t seconds moves the
    rate towards the rate of these seconds by 1 - exp(-t / period), as the load average does.
    """

    INTERVAL = 5.0
    SECONDS_PER_MINUTE = 60.0

    def __init__(self, period: float, interval: float = INTERVAL, clock: Clock = WALL) -> None:
        self.clock = clock
        self.interval = interval
        self.period = period * self.SECONDS_PER_MINUTE
        self._seconds = metric_clock(clock).monotonic
        self._uncounted = 0.0
        self._rate: float | None = None
        self.last_tick = self._seconds()

    def get_rate(self) -> float:
        """Return the rate, 0 before the first tick."""
        if self._seconds() - self.last_tick >= self.interval:
            self.tick()
        return self._rate or 0

    def add(self, value: float) -> None:
        """Add `value` events."""
        self._uncounted += value

    def tick(self) -> None:
        """Update the rate with the events since the last tick; do nothing if no time has passed."""
        now = self._seconds()
        passed = now - self.last_tick
        if passed <= 0:
            return
        rate, self._uncounted = self._uncounted / passed, 0.0
        self.last_tick = now
        self._rate = rate if self._rate is None else self._rate + (1 - exp(-passed / self.period)) * (rate - self._rate)
