"""The meter: a count of events and their rates."""

from __future__ import annotations

import logging
from math import isfinite
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from tallystream.metrics import counter, meter
from tallystream.pyformance_compat.stats import WALL, Clock, metric_clock

if TYPE_CHECKING:
    from tallystream import record

_log = logging.getLogger("tallystream.pyformance_compat")


class Meter:
    """A count with its rates per second: mean since `clear()`, and weighted over 1, 5 and 15 minutes.

    The record has all events since the start of the process, since its counts must not fall.
    """

    _rest: float

    def __init__(self, clock: Clock = WALL) -> None:
        self.clock = clock
        self._name = ""
        self.tallystream_reset()

    def mark(self, value: float = 1) -> None:
        """Add `value` events.

        A fraction or a negative number changes `get_count()` immediately. It changes the rates and the record as soon
        as its sum with later values is a positive whole number or more. A value that Tallystream's meter refuses, such
        as NaN, is skipped and logged.
        """
        try:
            with self._lock:
                rest = self._rest + value
                whole = _whole(rest)
                self._meter.mark(whole)
                self._rest = rest - whole
                self._reported.inc(whole)
        except (ValueError, OverflowError) as error:
            _log.warning("%r skips a mark: %s", self._name, error)

    def clear(self) -> None:
        """Set the count and the rates to zero."""
        with self._lock:
            self._clear()

    def tick(self) -> None:
        """Update the weighted rates, if five seconds have passed."""
        self._meter.rates()

    def get_count(self) -> float:
        """Return the count, as a float."""
        with self._lock:
            return float(self._meter.count + self._rest)

    def get_mean_rate(self) -> float:
        """Return the events per second since the start or `clear()`, or 0 if no time has passed."""
        return self._meter.rates().mean_rate or 0

    def get_one_minute_rate(self) -> float:
        """Return the events per second, weighted over a minute."""
        return self._meter.rates().m1_rate or 0

    def get_five_minute_rate(self) -> float:
        """Return the events per second, weighted over 5 minutes."""
        return self._meter.rates().m5_rate or 0

    def get_fifteen_minute_rate(self) -> float:
        """Return the events per second, weighted over 15 minutes."""
        return self._meter.rates().m15_rate or 0

    def _clear(self) -> None:
        self._meter = meter.Meter(self._name, {}, metric_clock(self.clock))
        self._rest = 0

    def tallystream_register(self, name: str) -> None:
        """Store the name in the registry, for the log."""
        self._name = self._meter.name = name

    def tallystream_dump(self) -> dict[str, Any]:
        """Return the values with pyformance's names."""
        return {"count": self.get_count(), **self.tallystream_rates()}

    def tallystream_rates(self) -> dict[str, Any]:
        """Return the rates with pyformance's names."""
        return {
            "15m_rate": self.get_fifteen_minute_rate(),
            "5m_rate": self.get_five_minute_rate(),
            "1m_rate": self.get_one_minute_rate(),
            "mean_rate": self.get_mean_rate(),
        }

    def tallystream_read(self, name: str, tags: dict[str, str]) -> record.Meter:
        """Return all events since the start of the process, and the rates, as a record struct."""
        return msgspec.structs.replace(
            self._meter.collect(views=True), name=name, tags=tags, count=self._reported.count
        )

    def tallystream_retire(self, name: str, tags: dict[str, str]) -> record.Metric:
        """Return the same, for the next meter of this name."""
        return self.tallystream_read(name, tags)

    def tallystream_reset(self) -> None:
        """Count from zero in the child of a fork."""
        self._lock = Lock()
        self._reported = counter.Counter("", {})
        self._clear()


def _whole(events: float) -> int:
    if not isfinite(events):  # an integer that is too large for a float raises OverflowError
        raise ValueError(f"{events} is not a finite number")
    return max(int(events), 0)
