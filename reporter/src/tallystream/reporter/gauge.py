"""A value of this moment, set by hand or asked of a function."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tallystream.reporter import record
from tallystream.reporter._cached import Cached
from tallystream.reporter.metric import Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


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
            TypeError: the gauge has a function, which gives its value.
        """
        if self.function is not None:
            raise TypeError(f"the gauge {self.name!r} is computed by a function; it can't be set")
        self._value = value

    @property
    def value(self) -> float | None:
        """The value now, None before it is first set; what the function raises is raised here."""
        return self._value if self.function is None else self.function()

    def read(self) -> record.Gauge | None:
        """Return the value in the record's form, None before it is first set."""
        value = self.value
        return None if value is None else record.Gauge(name=self.name, tags=self.tags, value=value)

    def start_anew(self) -> None:
        """Unset the value, which is the parent's; a function stays, and is asked anew."""
        self._value = None
        if isinstance(self.function, Cached):
            self.function.start_anew()
