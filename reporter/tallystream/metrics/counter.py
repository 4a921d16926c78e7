"""Counts: the counter, which only grows, and the up-down counter."""

from __future__ import annotations

from operator import index
from threading import Lock
from typing import TYPE_CHECKING, ClassVar

from tallystream import record
from tallystream.metrics.base import Metric
from tallystream.validation import as_number

if TYPE_CHECKING:
    from collections.abc import Mapping


BUFFER = 256
"""Increments that are added up together."""


class Counter(Metric):
    """A count that only grows: what happened, how often. Sums over instances, restarts and crashes are exact.

    `inc()` and `count` wait for no lock, so signal handlers and finalizers may use them, too.
    """

    kind: ClassVar[str] = "counter"
    __slots__ = ("_amounts", "_lock")

    def __init__(self, name: str, tags: Mapping[str, str]) -> None:
        super().__init__(name, tags)
        self.reset_after_fork()

    def inc(self, n: int = 1) -> None:
        """Add `n`, a whole number that is not negative.

        Raises:
            ValueError: `n` is negative: a count that may fall is an `updown`.
            TypeError: `n` is not a whole number.
        """
        if n.__class__ is not int:
            n = int(index(n))
        if n < 0:
            raise ValueError(f"the counter {self.name!r} can't grow by {n}; use registry.updown for what may fall")
        amounts = self._amounts
        amounts.append(n)
        if len(amounts) >= BUFFER:
            self._add_up()

    @property
    def count(self) -> int:
        """Everything counted in this process."""
        self._add_up()
        return sum(self._amounts[:])

    def read(self) -> record.Counter:
        """Return the count in the record's form."""
        return record.Counter(name=self.name, tags=self.tags, count=self.count)

    def reset_after_fork(self) -> None:
        """Count from zero again."""
        self._lock = Lock()
        self._amounts = [0]  # what was added up so far, and the increments since

    def _add_up(self) -> None:
        # Appending, copying and replacing a slice are atomic, with and without the GIL, so each copy of the list has
        # every increment once. Only one thread replaces at a time; the others need not wait for it.
        amounts = self._amounts
        if len(amounts) > 1 and self._lock.acquire(blocking=False):
            try:
                size = len(amounts)
                amounts[:size] = [sum(amounts[:size])]
            finally:
                self._lock.release()


class UpDownCounter(Metric):
    """A number that is moved up and down: connections open, jobs running. It is summed over the living instances."""

    kind: ClassVar[str] = "updown"
    __slots__ = ("_lock", "_value")

    def __init__(self, name: str, tags: Mapping[str, str]) -> None:
        super().__init__(name, tags)
        self.reset_after_fork()

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

    def reset_after_fork(self) -> None:
        """Begin at zero again: what the parent opened, the parent reports."""
        self._lock = Lock()
        self._value: float = 0
