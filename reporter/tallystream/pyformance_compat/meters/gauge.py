"""Gauges: current values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tallystream.metrics import gauge

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream import record


class Gauge:
    """The base class of gauges. A subclass defines `get_value()`."""

    def get_value(self) -> Any:
        """Return the current value.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError

    def tallystream_register(self, name: str) -> None:
        """Do nothing: a gauge does not need its name."""

    def tallystream_dump(self) -> dict[str, Any]:
        """Return the value with pyformance's name."""
        return {"value": self.get_value()}

    def tallystream_read(self, name: str, tags: dict[str, str]) -> record.Metric | None:
        """Return the value as a record struct, or None for NaN, pyformance's value of a gauge that is not set."""

        def value() -> Any:
            found = self.get_value()
            return found if found == found else None  # noqa: PLR0124 - only NaN differs from itself, of any type

        return gauge.Gauge(name, tags, value).read()

    def tallystream_retire(self, name: str, tags: dict[str, str]) -> None:
        """Return None: a gauge has no count that must continue."""

    def tallystream_reset(self) -> None:
        """Keep the value in the child of a fork: only the application knows whether it is still valid."""


class CallbackGauge(Gauge):
    """A gauge that calls `callback` for its value."""

    def __init__(self, callback: Callable[[], Any]) -> None:
        super().__init__()
        self.callback = callback

    def get_value(self) -> Any:
        """Return the result of the callback. Raises its errors."""
        return self.callback()


class SimpleGauge(Gauge):
    """A gauge that is set. Its value is NaN before, if no other is given."""

    def __init__(self, value: Any = float("nan")) -> None:
        super().__init__()
        self._value = value

    def get_value(self) -> Any:
        """Return the value that was set last."""
        return self._value

    def set_value(self, value: Any) -> None:
        """Set the value."""
        self._value = value
