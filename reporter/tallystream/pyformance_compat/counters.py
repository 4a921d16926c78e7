"""Counters and gauges, and what all types of metrics have for their registry, as methods `tallystream_…`."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from operator import index
from threading import RLock
from typing import TYPE_CHECKING, Any

import msgspec

from tallystream import record
from tallystream.metrics import gauge
from tallystream.validation import LARGEST, as_number

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("tallystream.pyformance_compat")


class Metric(ABC):
    """What a registry needs of a metric.

    Dumps and getters show what came after the last `clear()`. The record has what was counted since the start of the
    process, since its counts must not fall.
    """

    tallystream_name = ""
    """The key in the registry, for the log."""

    @abstractmethod
    def tallystream_dump(self) -> dict[str, Any]:
        """Return the values with pyformance's names."""

    @abstractmethod
    def tallystream_read(self, name: str, *, views: bool) -> record.Metric | None:
        """Return the values as a record struct, of distributions with the view if `views`."""

    def tallystream_retire(self, name: str) -> record.Metric | None:
        """Return the counts from which the next metric of this name continues, without rates; None if it has none."""
        value = self.tallystream_read(name, views=False)
        rates = [rate for rate in value.__struct_fields__ if rate.endswith("_rate")] if value else []
        return msgspec.structs.replace(value, **dict.fromkeys(rates, 0.0)) if value and rates else value

    @abstractmethod
    def tallystream_reset(self) -> None:
        """Count from zero in the child of a fork."""


class Counter(Metric):
    """A number that can be incremented and decremented.

    It is reported as `counter`, whose sum over instances is exact, while it only grows by whole numbers. After the
    first `dec()`, `clear()`, negative number or fraction, it is reported as `updown`, with its complete value.
    """

    _value: Any
    _grown: int
    """The value before the counter fell."""

    def __init__(self) -> None:
        self._falls = False
        self.tallystream_reset()

    def inc(self, val: Any = 1) -> None:
        """Add `val`: any real number. One that makes the value infinite or NaN is skipped and logged."""
        try:
            is_count = index(val) >= 0
        except TypeError:
            is_count = False
        self._add(val, falls=not is_count)

    def dec(self, val: Any = 1) -> None:
        """Subtract `val`."""
        self._add(-val, falls=True)

    def clear(self) -> None:
        """Set the value to zero."""
        with self._lock:
            self._add(-self._value, falls=True)
            self._value = 0  # not a float

    def get_count(self) -> Any:
        """Return the value."""
        return self._value

    def _add(self, val: Any, *, falls: bool) -> None:
        number = as_number(val)
        with self._lock:
            value = self._value + number
            if not -LARGEST <= value <= LARGEST:  # as NaN is
                log.warning("%r skips %.100r: give finite numbers", self.tallystream_name, val)
                return
            is_first_fall = falls and not self._falls
            self._value, self._falls = value, self._falls or falls
            if not self._falls:
                self._grown = value
        if is_first_fall:
            log.warning(
                "the counter %r was decremented or cleared, so it is reported as updown from now on: its sum is over "
                "the living instances; use a separate counter for what only grows",
                self.tallystream_name,
            )

    def tallystream_dump(self) -> dict[str, Any]:
        """Return the value with pyformance's name."""
        return {"count": self.get_count()}

    def tallystream_read(self, name: str, *, views: bool) -> record.Metric:  # noqa: ARG002 - used by distributions
        """Return the value as a record struct."""
        with self._lock:
            return record.UpDown(name=name, value=self._value) if self._falls else self.tallystream_retire(name)

    def tallystream_retire(self, name: str) -> record.Metric:
        """Return the count before the counter fell."""
        return record.Counter(name=name, count=self._grown)

    def tallystream_reset(self) -> None:
        """Count from zero. A counter that fell remains an `updown`."""
        self._lock = RLock()
        self._value = self._grown = 0


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

    def tallystream_read(self, name: str, *, views: bool) -> record.Metric | None:  # noqa: ARG002 - as above
        """Return the value as a record struct, or None for NaN, pyformance's value of a gauge that is not set."""

        def value() -> Any:
            found = self.get_value()
            return found if found == found else None  # noqa: PLR0124 - only NaN differs from itself, of any type

        return gauge.Gauge(name, {}, value).read()

    def tallystream_retire(self, name: str) -> None:
        """Return None."""

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
