"""Gauges, which are set or computed by functions, and functions that compute one from other metrics."""

from __future__ import annotations

import logging
from math import inf, isfinite
from threading import Lock
from typing import TYPE_CHECKING, ClassVar

from tallystream import record
from tallystream.clock import SYSTEM_CLOCK, Clock
from tallystream.errors import is_of_a_signal
from tallystream.log_throttle import RateLimitFilter
from tallystream.metrics.base import Metric
from tallystream.metrics.counter import Counter, UpDownCounter
from tallystream.metrics.histogram import Histogram
from tallystream.metrics.meter import Meter
from tallystream.process.signals import run_locked
from tallystream.validation import as_number, label

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    Source: TypeAlias = "Counter | UpDownCounter | Gauge | Meter | Histogram | Callable[[], float | None]"


_log = logging.getLogger("tallystream.metrics.gauges")
_log.addFilter(RateLimitFilter())


class Gauge(Metric):
    """A current value, such as the length of a queue or a temperature.

    It is either set, or computed by `function` for each snapshot. If the function returns None, no value is reported.
    If it raises, or the value is not a finite number, the gauge is skipped in that snapshot, and this is logged at most
    once a minute.
    """

    kind: ClassVar[str] = "gauge"
    __slots__ = ("_cached_for", "_clock", "_due", "_lock", "_value", "function")

    _value: float | None

    def __init__(self, name: str, tags: Mapping[str, str], function: Callable[[], float | None] | None = None) -> None:
        super().__init__(name, tags)
        self.function = function
        self._cached_for = 0.0
        self._clock: Clock = SYSTEM_CLOCK
        self.reset_after_fork()

    def compute_by(self, function: Callable[[], float | None], cached_for: float, clock: Clock) -> None:
        """Compute the value by `function` from now on, at most once in `cached_for` seconds, if that is above 0.

        While one thread computes a new value, other callers get None. After an error, the value is None until the time
        is over.
        """
        self._due, self._cached_for, self._clock = -inf, cached_for, clock
        self.function = function

    def set(self, value: float) -> None:
        """Set the value.

        Raises:
            TypeError: `value` is not a real number, or a function computes the gauge's value.
        """
        if self.function is not None:
            raise TypeError(f"the gauge {self.name!r} is computed by a function; it can't be set")
        self._value = as_number(value)

    @property
    def value(self) -> float | None:
        """The value that was set last, or None before that. With a function, its result; its errors are raised here."""
        if self.function is not None and not self._cached_for:
            return self.function()
        if self.function is not None and (now := self._clock.monotonic()) >= self._due:
            run_locked(self._lock, lambda: self._renew(now))
        return self._value

    def _renew(self, now: float) -> None:
        self._due = now + self._cached_for
        self._value = None
        self._value = None if self.function is None else self.function()

    def read(self) -> record.Gauge | None:
        """Return the value as a record struct, or None if there is no valid value. An invalid value is logged."""
        gauge = self.compute()
        return None if gauge is None else checked(gauge)

    def compute(self) -> record.Gauge | None:
        """Return the current value, not yet `checked`, or None if there is none. If the function fails, log it.

        The function is code of the application: a snapshot calls it before it locks the registry. Whatever it
        raises, the other metrics must be reported.
        """
        try:
            value = self.value
        except BaseException as error:
            if is_of_a_signal(error):
                raise
            _log.exception("gauge %s is skipped in this snapshot: its function failed", label(self.name, self.tags))
            return None
        return None if value is None else record.Gauge(name=self.name, tags=self.tags, value=value)

    def collect(self, *, views: bool) -> record.Gauge | None:  # noqa: ARG002 - used by distributions
        """Return the value that was set last, not `checked`: that may log, and so run code of the application."""
        value = self._value
        return None if value is None else record.Gauge(name=self.name, tags=self.tags, value=value)

    def reset_after_fork(self) -> None:
        """Remove the value, which is the parent's. A function stays, and is called again."""
        self._lock = Lock()
        self._due = -inf
        self._value = None


def checked(gauge: record.Gauge) -> record.Gauge | None:
    """Return the gauge with its value as an int or float. If it is not a finite number, log it and return None."""
    try:
        number = as_number(gauge.value)
        if isfinite(number):
            return record.Gauge(name=gauge.name, tags=gauge.tags, value=number)
    except Exception:  # noqa: BLE001 - the value may have any type, and the other metrics must be reported
        _log.debug("the failure in full", exc_info=True)
    text = "gauge %s is skipped in this snapshot: %.100r is not a finite number"
    _log.warning(text, label(gauge.name, gauge.tags), gauge.value)
    return None


def derived(source: Source, transform: Callable[[float], float | None]) -> Callable[[], float | None]:
    """Return a function for a gauge: `transform` applied to the source's value, or None if the source has no value.

    Args:
        source: a gauge or updown (its value), a counter, meter, histogram or timer (its count), or any function.
        transform: a function of that value.
    """
    read = _reader(source)

    def compute() -> float | None:
        value = read()
        return None if value is None else transform(value)

    return compute


def ratio(numerator: Source, denominator: Source) -> Callable[[], float | None]:
    """Return a function for a gauge: one value divided by another, or None if one is missing or the divisor is 0.

    Args:
        numerator: as `source` of `derived`.
        denominator: as `source` of `derived`.
    """
    read_numerator, read_denominator = _reader(numerator), _reader(denominator)

    def compute() -> float | None:
        # The divisor is read last, so that of two counts that grow together, it is not the older one.
        dividend = read_numerator()
        divisor = read_denominator()
        return None if dividend is None or not divisor else dividend / divisor

    return compute


def _reader(source: Source) -> Callable[[], float | None]:
    if isinstance(source, Gauge | UpDownCounter):
        return lambda: source.value
    if isinstance(source, Counter | Meter | Histogram):
        return lambda: source.count
    return source
