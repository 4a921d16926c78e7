"""Gauges, which are set or computed by functions."""

from __future__ import annotations

import logging
from math import isfinite
from typing import TYPE_CHECKING, ClassVar

from tallystream import record
from tallystream.errors import is_of_a_signal
from tallystream.log_throttle import RateLimitFilter
from tallystream.metrics.base import Metric
from tallystream.validation import as_number, label

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_log = logging.getLogger("tallystream.metrics.gauges")
_log.addFilter(RateLimitFilter())


class Gauge(Metric):
    """A current value, such as the length of a queue or a temperature.

    It is either set, or computed by `function` for each snapshot. If the function returns None, no value is reported.
    If it raises, or the value is not a finite number, the gauge is skipped in that snapshot, and this is logged at most
    once a minute.
    """

    kind: ClassVar[str] = "gauge"
    __slots__ = ("_value", "function")

    _value: float | None

    def __init__(self, name: str, tags: Mapping[str, str], function: Callable[[], float | None] | None = None) -> None:
        super().__init__(name, tags)
        self.function = function
        self.reset_after_fork()

    def set(self, value: float) -> None:
        """Set the value. The gauge has none after a number that is not finite.

        Raises:
            TypeError: `value` is not a real number, or a function computes the gauge's value.
        """
        if self.function is not None:
            raise TypeError(f"the gauge {self.name!r} is computed by a function; it can't be set")
        self._value = self._finite(as_number(value))

    @property
    def value(self) -> float | None:
        """The value that was set last, or None before that. With a function, its result; its errors are raised here."""
        return self._value if self.function is None else self.function()

    def read(self) -> record.Gauge | None:
        """Return the value as a record struct, or None if there is none. A function that fails is logged.

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
        return self._record(None if value is None else self._finite(value))

    def collect(self, *, views: bool) -> record.Gauge | None:  # noqa: ARG002 - used by distributions
        """Return the value that was set last, or None if there is none or a function computes it."""
        return self._record(self._value)

    def reset_after_fork(self) -> None:
        """Remove the value, which is the parent's. A function stays, and is called again."""
        self._value = None

    def _record(self, value: float | None) -> record.Gauge | None:
        return None if value is None else record.Gauge(name=self.name, tags=self.tags, value=value)

    def _finite(self, value: float) -> float | None:
        """Return the value as an int or float. If it is not a finite number, log it and return None."""
        try:
            number = as_number(value)
            if isfinite(number):
                return number
        except Exception:  # noqa: BLE001 - the value may have any type, and the other metrics must be reported
            _log.debug("the failure in full", exc_info=True)
        text = "gauge %s is skipped: %.100r is not a finite number"
        _log.warning(text, label(self.name, self.tags), value)
        return None
