"""How many events, and how fast they come."""

from __future__ import annotations

from threading import Lock
from typing import Any

from tallystream.reporter import record
from tallystream.reporter.pyformance_compat._clock import WALL, Clock, elapsing
from tallystream.reporter.pyformance_compat._number import count
from tallystream.reporter.pyformance_compat.stats.moving_average import ExpWeightedMovingAvg


class Meter:
    """A count with its rates per second: mean since `clear()`, and weighted over 1, 5 and 15 minutes.

    In the record the count is of everything ever marked: `clear()` and negative marks do not reach it, for counts never
    fall there.
    """

    _count: float
    _ever: float
    _rates: tuple[ExpWeightedMovingAvg, ...]

    def __init__(self, clock: Clock = WALL) -> None:
        self.clock = clock
        self._seconds = elapsing(clock)
        self.tallystream_start_anew()

    def mark(self, value: float = 1) -> None:
        """Take `value` events."""
        with self._lock:
            self._count = self._count + value
            for rate in self._rates:
                rate.add(value)
            if value > 0:
                self._ever += value

    def clear(self) -> None:
        """Count from zero again, the rates too."""
        with self._lock:
            self._forget()

    def tick(self) -> None:
        """Let the weighted rates take what was marked since their last tick."""
        with self._lock:
            for rate in self._rates:
                rate.tick()

    def get_count(self) -> float:
        """Return the count, as a float."""
        return self._count

    def get_mean_rate(self) -> float:
        """Return the events per second since the beginning, 0 where no time has passed."""
        with self._lock:
            elapsed = self._seconds() - self.start_time
            return self._count / elapsed if self._count and elapsed > 0 else 0

    def get_one_minute_rate(self) -> float:
        """Return the events per second, weighted over a minute."""
        with self._lock:
            return self.m1rate.get_rate()

    def get_five_minute_rate(self) -> float:
        """Return the events per second, weighted over 5 minutes."""
        with self._lock:
            return self.m5rate.get_rate()

    def get_fifteen_minute_rate(self) -> float:
        """Return the events per second, weighted over 15 minutes."""
        with self._lock:
            return self.m15rate.get_rate()

    def _forget(self) -> None:
        self.start_time = self._seconds()
        self._count = 0.0
        self.m1rate = ExpWeightedMovingAvg(1, clock=self.clock)
        self.m5rate = ExpWeightedMovingAvg(5, clock=self.clock)
        self.m15rate = ExpWeightedMovingAvg(15, clock=self.clock)
        self._rates = (self.m1rate, self.m5rate, self.m15rate)

    def tallystream_join(self, name: str, earlier: Any) -> None:  # noqa: ARG002 - all metrics are told their name
        """Count on in the record from what the one before left."""
        with self._lock:
            self._ever += earlier or 0

    def tallystream_leave(self) -> float:
        """Return everything ever marked, and forget it."""
        with self._lock:
            ever, self._ever = self._ever, 0
            return ever

    def tallystream_rates(self) -> dict[str, Any]:
        """Return the four rates as the record names them."""
        return {
            "mean_rate": self.get_mean_rate(),
            "m1_rate": self.get_one_minute_rate(),
            "m5_rate": self.get_five_minute_rate(),
            "m15_rate": self.get_fifteen_minute_rate(),
        }

    def tallystream_read(self, name: str, tags: dict[str, str]) -> record.Metric | None:
        """Return count and rates in the record's form; of fractions the whole part is counted."""
        return record.Meter(name=name, tags=tags, count=count(self._ever), **self.tallystream_rates())

    def tallystream_start_anew(self) -> None:
        """Count from zero again, with a new lock: for the child of a fork."""
        self._lock = Lock()
        self._ever = 0
        self._forget()
