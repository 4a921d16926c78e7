"""A gauge: a current value, set by the application or returned by a function, which may be cached."""

from __future__ import annotations

import logging
from math import inf, isfinite
from threading import Lock
from typing import TYPE_CHECKING, ClassVar

from tallystream import record
from tallystream.errors import ConfigError
from tallystream.log_throttle import RateLimitFilter
from tallystream.metrics.base import Metric
from tallystream.validation import as_number, label

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tallystream.clock import Clock


class Cached:
    """Calls `function` once in `seconds` at most, from any number of threads, also when it raises.

    While one thread computes the value, other callers get None. After an error the value is None until the time is
    over.

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
        """Return the cached value, or compute it if it is too old and no other thread computes it."""
        now = self._clock.monotonic()
        if now >= self._due and self._lock.acquire(blocking=False):
            try:
                self._due = now + self._seconds
                self._value = None
                self._value = self._function()
            finally:
                self._lock.release()
        return self._value

    def reset_after_fork(self) -> None:
        """Drop the value and replace the lock, in the child of a fork."""
        self._lock = Lock()
        self._due, self._value = -inf, None


_log = logging.getLogger("tallystream.metrics.gauges")
_log.addFilter(RateLimitFilter())


class Gauge(Metric):
    """A value of this moment: a queue's length, a temperature.

    It is either set, or computed by `function` for each snapshot; where that returns None there is no value to report.
    A function that raises, or a value that is no finite number, leaves the gauge out of that snapshot, which is logged,
    once a minute at most.
    """

    kind: ClassVar[str] = "gauge"
    __slots__ = ("_value", "function")

    def __init__(self, name: str, tags: Mapping[str, str], function: Callable[[], float | None] | None = None) -> None:
        super().__init__(name, tags)
        self.function = function
        self._value: float | None = None

    def set(self, value: float) -> None:
        """Set the value.

        Raises:
            TypeError: it is no real number, or the gauge has a function, which gives its value.
        """
        if self.function is not None:
            raise TypeError(f"the gauge {self.name!r} is computed by a function; it can't be set")
        self._value = as_number(value)

    @property
    def value(self) -> float | None:
        """What was set last, None before that, or what the function returns; what that raises is raised here."""
        return self._value if self.function is None else self.function()

    def read(self) -> record.Gauge | None:
        """Return the value in the record's form, None where a snapshot leaves the gauge out, with a line in the log."""
        found = self.compute()
        return None if found is None else checked(found)

    def compute(self) -> record.Gauge | None:
        """Return the value of this moment, not `checked`; None, with a line in the log, where the function fails.

        The function is the application's code: a snapshot calls it before it locks the registry.
        """
        try:
            value = self.value
        except Exception:  # noqa: BLE001 - whatever it is, the gauge's neighbours must be reported
            _log.exception("gauge %s is skipped in this snapshot: its function failed", label(self.name, self.tags))
            return None
        return None if value is None else record.Gauge(name=self.name, tags=self.tags, value=value)

    def collect(self, *, views: bool) -> record.Gauge | None:  # noqa: ARG002 - matters to distributions
        """Return what was set last, not `checked`: that may write to the log, and so run code of the application."""
        value = self._value
        return None if value is None else record.Gauge(name=self.name, tags=self.tags, value=value)

    def reset_after_fork(self) -> None:
        """Unset the value, which is the parent's; a function stays, and is asked again."""
        self._value = None
        if isinstance(self.function, Cached):
            self.function.reset_after_fork()


def checked(gauge: record.Gauge) -> record.Gauge | None:
    """Return the gauge with a number as the record has it; None, with a line in the log, where it is no finite one."""
    try:
        number = as_number(gauge.value)
        if isfinite(number):
            return record.Gauge(name=gauge.name, tags=gauge.tags, value=number)
    except Exception:  # noqa: BLE001 - a value of any type, whose neighbours must be reported
        _log.debug("the failure in full", exc_info=True)
    text = "gauge %s is skipped in this snapshot: %.100r is not a finite number"
    _log.warning(text, label(gauge.name, gauge.tags), gauge.value)
    return None
