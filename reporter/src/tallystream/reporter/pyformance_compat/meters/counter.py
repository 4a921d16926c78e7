"""A count that may fall: reported as `counter` until it does, as `updown` from then on."""

from __future__ import annotations

import warnings
from operator import index
from threading import Lock
from typing import Any

from tallystream.reporter import record
from tallystream.reporter.pyformance_compat._number import count, number


class CounterFellWarning(UserWarning):
    """A registry's counter was taken down or cleared for the first time: from now on it is reported as `updown`."""


class Counter:
    """A number that is counted up, and down.

    What only grows by whole numbers is reported as `counter`, whose sum over instances is exact for ever. The first
    `dec()`, `clear()`, negative or broken increment makes it an `updown` for good: reported with its whole value, which
    counts in the sum while the instance lives.
    """

    _value: Any
    _base: int
    _reported: int

    def __init__(self) -> None:
        self.tallystream_start_anew()
        self._name: str | None = None
        self._falls = False

    def inc(self, val: Any = 1) -> None:
        """Add `val`: any number."""
        if val.__class__ is not int:
            try:
                val = index(val)
            except TypeError:
                self._move(val)
                return
        if val < 0:
            self._move(val)
            return
        with self._lock:
            self._value += val

    def dec(self, val: Any = 1) -> None:
        """Take `val` away."""
        self._move(-val)

    def get_count(self) -> Any:
        """Return where it stands."""
        return self._value

    def clear(self) -> None:
        """Begin at zero again."""
        # Value and type change in one step: a snapshot between them would see a count that fell.
        with self._lock:
            self._value = 0
            first, self._falls = not self._falls, True
        if first:
            self._warn(3)

    def _move(self, val: Any) -> None:
        with self._lock:
            self._value = self._value + val
            first, self._falls = not self._falls, True
        if first:
            self._warn(4)

    def _warn(self, level: int) -> None:
        if self._name is None:  # of no registry, so nobody reports it
            return
        warnings.warn(
            f"the counter {self._name!r} was taken down or cleared, so it is reported as updown from now on: its sum "
            "is over the living instances; use a counter of its own for what only grows",
            CounterFellWarning,
            stacklevel=level,
        )

    def tallystream_join(self, name: str, earlier: Any) -> None:
        """Belong to a registry as `name`, and count on in the record from what the one before left."""
        with self._lock:
            self._name = name
            self._base += earlier or 0
            self._reported = self._base
            falls = self._falls
        if falls:
            self._warn(5)

    def tallystream_leave(self) -> int:
        """Belong to no registry any more; return the count that the record must not fall below."""
        with self._lock:
            owed = self._reported if self._falls else self._base + self._whole()
            self._base = self._reported = 0
            self._name = None
            return owed

    def _whole(self) -> int:
        assert isinstance(self._value, int)
        return self._value

    def tallystream_read(self, name: str, tags: dict[str, str]) -> record.Metric | None:
        """Return the present value in the record's form."""
        with self._lock:
            value = self._value
            if not self._falls:
                self._reported = self._base + self._whole()
                return record.Counter(name=name, tags=tags, count=count(self._reported))
        return record.UpDown(name=name, tags=tags, value=number(value))

    def tallystream_start_anew(self) -> None:
        """Count from zero again, with a new lock: for the child of a fork. What fell once is an `updown` there too."""
        self._lock = Lock()
        self._value = 0
        self._base = self._reported = 0
