"""Values of this moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystream.reporter import record
from tallystream.reporter.pyformance_compat._number import number

if TYPE_CHECKING:
    from collections.abc import Callable


class Gauge:
    """Base of the gauges: a subclass says what `get_value()` returns."""

    def get_value(self) -> Any:
        """Return the value of this moment.

        Raises:
            NotImplementedError: the subclass has none.
        """
        raise NotImplementedError

    def tallystream_join(self, name: str, earlier: Any) -> None:
        """Belong to a registry, to which a gauge owes nothing."""

    def tallystream_leave(self) -> None:
        """Belong to no registry any more."""

    def tallystream_read(self, name: str, tags: dict[str, str]) -> record.Metric | None:
        """Return the present value in the record's form; None for NaN, which says "not set", as pyformance has it."""
        value = self.get_value()
        if value is None or value != value:  # noqa: PLR0124 - true of NaN alone, whatever type of number it is
            return None
        return record.Gauge(name=name, tags=tags, value=number(value))

    def tallystream_start_anew(self) -> None:
        """Keep the value: what it is after a fork only the application knows."""


class CallbackGauge(Gauge):
    """A gauge whose value `callback` returns, each time it is asked."""

    def __init__(self, callback: Callable[[], Any]) -> None:
        super().__init__()
        self.callback = callback

    def get_value(self) -> Any:
        """Return what the callback returns; what it raises is raised."""
        return self.callback()


class SimpleGauge(Gauge):
    """A gauge that is set; NaN before."""

    def __init__(self, value: Any = float("nan")) -> None:
        super().__init__()
        self._value = value

    def get_value(self) -> Any:
        """Return the value last set."""
        return self._value

    def set_value(self, value: Any) -> None:
        """Set the value."""
        self._value = value
