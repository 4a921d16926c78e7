"""An exponentially weighted moving average of a rate, that ticks when it is asked."""

from __future__ import annotations

from math import exp

from tallystream.reporter.pyformance_compat._clock import WALL, Clock, elapsing


class ExpWeightedMovingAvg:
    """Events per second, weighted over `period` minutes. Not locked: its owner does that.

    It ticks when it is read `interval` seconds or more after the last tick. A tick after t seconds moves the rate
    towards what was seen in them by 1 - exp(-t / period): the load average's formula for ticks that come irregularly.
    """

    INTERVAL = 5.0
    SECONDS_PER_MINUTE = 60.0

    def __init__(self, period: float, interval: float = INTERVAL, clock: Clock = WALL) -> None:
        self.clock = clock
        self.interval = interval
        self.period = period * self.SECONDS_PER_MINUTE
        self._seconds = elapsing(clock)
        self._uncounted = 0.0
        self._rate: float | None = None
        self.last_tick = self._seconds()

    def get_rate(self) -> float:
        """Return the rate, 0 before the first tick."""
        if self._seconds() - self.last_tick >= self.interval:
            self.tick()
        return 0 if self._rate is None else self._rate

    def add(self, value: float) -> None:
        """Take `value` events."""
        self._uncounted += value

    def tick(self) -> None:
        """Take what was added since the last tick into the rate; nothing happens where no time has passed."""
        now = self._seconds()
        passed = now - self.last_tick
        if passed <= 0:
            return
        seen = self._uncounted / passed
        self._uncounted = 0.0
        self.last_tick = now
        if self._rate is None:
            self._rate = seen
        else:
            self._rate += (1 - exp(-passed / self.period)) * (seen - self._rate)
