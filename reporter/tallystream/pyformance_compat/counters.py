"""Counters and gauges, and what all types of metrics have for their registry, as methods `tallystream_…`."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tallystream.metrics import counter, gauge

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream.metrics import base

log = logging.getLogger("tallystream.pyformance_compat")


class Metric(ABC):
    """What a registry needs of a metric.

    Dumps and getters show what came after the last `clear()`. The record has what `tallystream` has counted since the
    start of the process, since its counts must not fall.
    """

    tallystream: Any
    """The metric of Tallystream that counts the same. After `clear()` of a registry, the next one of its key has it."""

    tallystream_name = ""
    """The key in the registry, for the log."""

    @abstractmethod
    def tallystream_dump(self) -> dict[str, Any]:
        """Return the values with pyformance's names."""

    def tallystream_reported(self) -> base.Metric:
        """Return the metric of Tallystream that is in the record."""
        metric: base.Metric = self.tallystream
        return metric

    @abstractmethod
    def tallystream_reset(self) -> None:
        """Count from zero in the child of a fork."""


class Counter(Metric):
    """A number that can be incremented and decremented.

    It is reported as `counter`, whose sum over instances is exact, while it only grows by whole numbers. After the
    first `dec()`, `clear()`, negative number or fraction, it is reported as `updown`, with its complete value.
    """

    def __init__(self) -> None:
        self.tallystream = counter.Counter("", {})  # what was counted before the counter fell
        self._value = counter.UpDownCounter("", {})
        self._falls = False

    def inc(self, val: Any = 1) -> None:
        """Add `val`: any real number. One that makes the value infinite or NaN is skipped and logged."""
        if self._change(val) and not self._falls:
            try:
                self.tallystream.inc(val)
            except (TypeError, ValueError):  # a fraction, or a negative number
                self._fall()

    def dec(self, val: Any = 1) -> None:
        """Subtract `val`."""
        if self._change(-val):
            self._fall()

    def clear(self) -> None:
        """Set the value to zero."""
        self._value = counter.UpDownCounter("", {})
        self._fall()

    def get_count(self) -> Any:
        """Return the value."""
        return self._value.value

    def _change(self, val: Any) -> bool:
        try:
            self._value.inc(val)
        except ValueError as error:
            log.warning("%r skips a change: %s", self.tallystream_name, error)
            return False
        return True

    def _fall(self) -> None:
        if not self._falls:
            self._falls = True
            log.warning(
                "the counter %r was decremented or cleared, so it is reported as updown from now on: its sum is over "
                "the living instances; use a separate counter for what only grows",
                self.tallystream_name,
            )

    def tallystream_dump(self) -> dict[str, Any]:
        """Return the value with pyformance's name."""
        return {"count": self.get_count()}

    def tallystream_reported(self) -> base.Metric:
        """Return the counter, or the whole value after it fell."""
        return self._value if self._falls else super().tallystream_reported()

    def tallystream_reset(self) -> None:
        """Count from zero. A counter that fell remains an `updown`."""
        self.tallystream.reset_after_fork()
        self._value.reset_after_fork()


class Gauge(Metric):
    """The base class of gauges. A subclass defines `get_value()`."""

    def get_value(self) -> Any:
        """Return the current value.

        Raises:
            NotImplementedError: the subclass does not define it.
        """
        raise NotImplementedError

    def tallystream_dump(self) -> dict[str, Any]:
        """Return the value with pyformance's name."""
        return {"value": self.get_value()}

    def tallystream_reported(self) -> gauge.Gauge:
        """Return a gauge of the value. It has none for NaN, pyformance's value of a gauge that is not set."""

        def value() -> Any:
            found = self.get_value()
            return found if found == found else None  # noqa: PLR0124 - only NaN differs from itself, of any type

        return gauge.Gauge(self.tallystream_name, {}, value)

    def tallystream_reset(self) -> None:
        """Keep the value: only the application knows whether it is still valid."""


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
