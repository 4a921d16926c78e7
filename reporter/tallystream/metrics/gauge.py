"""A value of this moment, set by hand or asked of a function."""

from __future__ import annotations

import logging
from math import isfinite
from typing import TYPE_CHECKING, ClassVar

from tallystream import record
from tallystream.log_throttle import OncePerKind
from tallystream.metrics.base import Metric
from tallystream.metrics.cached import Cached
from tallystream.validation import as_number, label

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_log = logging.getLogger("tallystream.metrics.gauges")
_log.addFilter(OncePerKind())


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
            _log.exception("gauge %s is left out of this snapshot: its function failed", label(self.name, self.tags))
            return None
        return None if value is None else record.Gauge(name=self.name, tags=self.tags, value=value)

    def collect(self, *, views: bool) -> record.Gauge | None:  # noqa: ARG002 - matters to distributions
        """Return what was set last, not `checked`: that may write to the log, and so run code of the application."""
        value = self._value
        return None if value is None else record.Gauge(name=self.name, tags=self.tags, value=value)

    def start_anew(self) -> None:
        """Unset the value, which is the parent's; a function stays, and is asked anew."""
        self._value = None
        if isinstance(self.function, Cached):
            self.function.start_anew()


def checked(gauge: record.Gauge) -> record.Gauge | None:
    """Return the gauge with a number as the record has it; None, with a line in the log, where it is no finite one."""
    try:
        number = as_number(gauge.value)
        if isfinite(number):
            return record.Gauge(name=gauge.name, tags=gauge.tags, value=number)
    except Exception:  # noqa: BLE001 - a value of any type, whose neighbours must be reported
        _log.debug("the failure in full", exc_info=True)
    text = "gauge %s is left out of this snapshot: %.100r is no finite number"
    _log.warning(text, label(gauge.name, gauge.tags), gauge.value)
    return None
