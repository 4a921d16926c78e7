"""A value of this moment, set by hand or asked of a function."""

from __future__ import annotations

import logging
from math import isfinite
from typing import TYPE_CHECKING, ClassVar, Self

from tallystream.reporter import record
from tallystream.reporter._cached import Cached
from tallystream.reporter._names import label
from tallystream.reporter._numbers import as_number
from tallystream.reporter._quiet import OncePerKind
from tallystream.reporter.metric import Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_log = logging.getLogger("tallystream.reporter.gauges")
_log.addFilter(OncePerKind())


class Gauge(Metric):
    """A value of this moment: a queue's length, a temperature.

    It is either set, or computed by `function` for each snapshot; where that returns None there is no value to report.
    A function that raises, or a value that is no finite number, leaves the gauge out of that snapshot, which is logged,
    once a minute at most.
    """

    kind: ClassVar[str] = "gauge"
    __slots__ = ("_computed", "_value", "function")

    def __init__(self, name: str, tags: Mapping[str, str], function: Callable[[], float | None] | None = None) -> None:
        super().__init__(name, tags)
        self.function = function
        self._value: float | None = None
        self._computed: float | None = None  # what the function said last to a snapshot

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
        self.get_ready()
        return self.captured(self.capture())

    def get_ready(self) -> None:
        """Ask the function. It is the application's code: it runs before the capture, whose lock it could wait for."""
        if self.function is None:
            return
        value = None
        try:
            value = self.function()
        except Exception:  # noqa: BLE001 - whatever it is, the gauge's neighbours must be reported
            _log.exception("gauge %s is left out of this snapshot: its function failed", label(self.name, self.tags))
        self._computed = value  # in one step: another reporter's snapshot may be at its capture

    def capture(self, *, views: bool = True) -> float | None:  # noqa: ARG002 - matters to distributions
        """Hold the present value; where there is a function, what it said last."""
        return self._value if self.function is None else self._computed

    @classmethod
    def capture_all(cls, metrics: Sequence[Self], *, views: bool) -> list[float | None]:  # noqa: ARG003
        """Hold the present values."""
        return [each._value if each.function is None else each._computed for each in metrics]  # noqa: SLF001 - its own

    def captured(self, held: float | None) -> record.Gauge | None:
        """Return the value that was held in the record's form, None where there was none, or no finite number."""
        if held is None:
            return None
        try:
            value = as_number(held)
            if isfinite(value):
                return record.Gauge(name=self.name, tags=self.tags, value=value)
        except Exception:  # noqa: BLE001 - a value of any type, whose neighbours must be reported
            _log.debug("the failure in full", exc_info=True)
        text = "gauge %s is left out of this snapshot: %.100r is no finite number"
        _log.warning(text, label(self.name, self.tags), held)
        return None

    def start_anew(self) -> None:
        """Unset the value, which is the parent's; a function stays, and is asked anew."""
        self._value = self._computed = None
        if isinstance(self.function, Cached):
            self.function.start_anew()
