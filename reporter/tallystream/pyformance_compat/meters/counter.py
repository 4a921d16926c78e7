"""A count that may fall: it is reported as `counter` until it falls, then as `updown`."""

from __future__ import annotations

import logging
import warnings
from operator import index
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from tallystream.metrics import counter

if TYPE_CHECKING:
    from tallystream import record


_log = logging.getLogger("tallystream.pyformance_compat")


class CounterFellWarning(UserWarning):
    """A registry's counter can no longer be reported as `counter`: from now on it is reported as `updown`."""


class Counter:
    """A number that can be incremented and decremented.

    It is reported as `counter`, whose sum over instances is exact, while it only grows by whole numbers. After the
    first `dec()`, `clear()`, negative number or fraction, it is reported as `updown`, with its complete value.
    """

    _counter: counter.Counter
    _updown: counter.UpDownCounter | None

    def __init__(self) -> None:
        self._name: str | None = None
        self._falls = False
        self.tallystream_reset()

    def inc(self, val: Any = 1) -> None:
        """Add `val`: any real number. One that Tallystream's counter refuses, such as NaN, is skipped and logged."""
        self._move(val)

    def dec(self, val: Any = 1) -> None:
        """Subtract `val`."""
        self._move(-val, grows=False)

    def get_count(self) -> Any:
        """Return the value."""
        updown = self._updown
        return self._counter.count if updown is None else updown.value

    def clear(self) -> None:
        """Set the value to zero."""
        with self._lock:
            first = self._set(0)
        if first:
            self._warn(3)

    def _move(self, val: Any, *, grows: bool = True) -> None:
        try:
            with self._lock:
                if self._updown is None and grows and _is_count(val):
                    self._counter.inc(val)
                    return
                first = self._set(self.get_count(), val)
        except ValueError as error:
            _log.warning("%r skips a change: %s", self._name, error)
            return
        if first:
            self._warn(4)

    def _set(self, *values: Any) -> bool:
        # Replace the up-down counter with its value in one step, so that a snapshot never sees a counter that fell.
        updown = counter.UpDownCounter("", {})
        for value in values:
            updown.inc(value)
        first, self._updown, self._falls = not self._falls, updown, True
        return first

    def _warn(self, level: int) -> None:
        if self._name is None:  # in no registry, so not reported
            return
        warnings.warn(
            f"the counter {self._name!r} was decremented or cleared, so it is reported as updown from now on: its sum "
            "is over the living instances; use a separate counter for what only grows",
            CounterFellWarning,
            stacklevel=level,
        )

    def tallystream_register(self, name: str) -> None:
        """Store the name in the registry, for the warning."""
        self._name = name
        if self._falls:
            self._warn(5)

    def tallystream_dump(self) -> dict[str, Any]:
        """Return the values with pyformance's names."""
        return {"count": self.get_count()}

    def tallystream_read(self, name: str, tags: dict[str, str]) -> record.Metric | None:
        """Return the value as a record struct."""
        metric = self._counter if self._updown is None else self._updown
        return msgspec.structs.replace(metric.collect(views=True), name=name, tags=tags)

    def tallystream_retire(self, name: str, tags: dict[str, str]) -> record.Metric | None:
        """Return the count before the counter fell, for the next counter of this name."""
        return msgspec.structs.replace(self._counter.collect(views=True), name=name, tags=tags)

    def tallystream_reset(self) -> None:
        """Count from zero in the child of a fork. A counter that fell remains an `updown`."""
        self._lock = Lock()
        self._counter = counter.Counter("", {})
        self._updown = counter.UpDownCounter("", {}) if self._falls else None


def _is_count(val: Any) -> bool:
    try:
        return index(val) >= 0
    except TypeError:
        return False
