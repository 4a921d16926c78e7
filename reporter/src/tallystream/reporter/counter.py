"""Counts: the counter, which only grows, and the up-down counter."""

from __future__ import annotations

from operator import index
from threading import Lock
from typing import TYPE_CHECKING, ClassVar

from tallystream.reporter import record
from tallystream.reporter._numbers import as_number
from tallystream.reporter._ticks import new_ticks, ticked
from tallystream.reporter.metric import Metric

if TYPE_CHECKING:
    from collections.abc import Mapping


BUFFER = 256
"""Amounts taken in before they are added up together."""

_ONE = 1


class Counter(Metric):
    """A count that only grows: what happened, how often. Sums over instances, restarts and crashes are exact.

    `inc()` takes no lock and never waits, so it may be called from signal handlers and finalizers too.
    """

    kind: ClassVar[str] = "counter"
    __slots__ = ("_amounts", "_lock", "_sum", "_ticks")

    def __init__(self, name: str, tags: Mapping[str, str]) -> None:
        super().__init__(name, tags)
        self.start_anew()

    def inc(self, n: int = 1) -> None:
        """Add `n`, a whole number that is not negative.

        Raises:
            ValueError: `n` is negative: a count that may fall is an `updown`.
            TypeError: `n` is not a whole number.
        """
        if n is _ONE:  # the common case, in one step; a 1 that is another object goes the other way
            next(self._ticks)
            return
        if n.__class__ is not int:
            n = index(n)
        if n < 0:
            raise ValueError(f"the counter {self.name!r} can't grow by {n}; use registry.updown for what may fall")
        amounts = self._amounts
        amounts.append(n)
        # Whoever holds the lock adds them up as well, so there is nothing to wait for.
        if len(amounts) >= BUFFER and self._lock.acquire(blocking=False):
            try:
                self._add_up()
            finally:
                self._lock.release()

    @property
    def count(self) -> int:
        """Everything counted in this process."""
        if self._amounts:  # what is no longer in there is in the sum already
            with self._lock:
                self._add_up()
        return self._sum + ticked(self._ticks)

    def read(self) -> record.Counter:
        """Return the count in the record's form."""
        return record.Counter(name=self.name, tags=self.tags, count=self.count)

    def start_anew(self) -> None:
        """Count from zero again."""
        self._lock = Lock()
        self._ticks = new_ticks()
        self._amounts: list[int] = []
        self._sum = 0

    def _add_up(self) -> None:
        # A slice and its deletion are one step each, and others only append: no amount is lost or taken twice.
        size = len(self._amounts)
        if size:
            self._sum += sum(self._amounts[:size])
            del self._amounts[:size]


class UpDown(Metric):
    """A number that is moved up and down: connections open, jobs running. It is summed over the living instances."""

    kind: ClassVar[str] = "updown"
    __slots__ = ("_lock", "_value")

    def __init__(self, name: str, tags: Mapping[str, str]) -> None:
        super().__init__(name, tags)
        self.start_anew()

    def inc(self, n: float = 1) -> None:
        """Add `n`, of either sign.

        Raises:
            TypeError: `n` is no real number.
        """
        n = as_number(n)
        with self._lock:
            self._value += n

    def dec(self, n: float = 1) -> None:
        """Take `n` away."""
        self.inc(-n)

    @property
    def value(self) -> float:
        """Where it stands now; a whole number as long as only whole numbers were added."""
        return self._value

    def read(self) -> record.UpDown:
        """Return the value in the record's form."""
        return record.UpDown(name=self.name, tags=self.tags, value=self._value)

    def start_anew(self) -> None:
        """Begin at zero again: what the parent opened, the parent reports."""
        self._lock = Lock()
        self._value: float = 0
