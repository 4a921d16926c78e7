"""The counter, which only grows, and the up-down counter."""

from __future__ import annotations

from threading import Lock, RLock
from typing import TYPE_CHECKING, ClassVar

from tallystream import record
from tallystream.metrics.base import Metric
from tallystream.process.signals import run_locked
from tallystream.record import MAX_COUNT
from tallystream.validation import as_count, as_number

if TYPE_CHECKING:
    from collections.abc import Mapping


BUFFER = 256
"""The number of increments that are added up together, so that most of them cost one append."""

FEW = 16
"""A reading leaves up to so many increments as they are: they take little memory, and adding them up takes a lock."""


class Counter(Metric):
    """A count that only grows. Its sum over instances, restarts and crashes is exact.

    `inc()` and `count` do not wait for a lock, so signal handlers and finalizers may use them.
    """

    kind: ClassVar[str] = "counter"
    __slots__ = ("_amounts", "_lock")

    def __init__(self, name: str, tags: Mapping[str, str]) -> None:
        super().__init__(name, tags)
        self.reset_after_fork()

    def inc(self, n: int = 1) -> None:
        """Add `n`, a non-negative whole number.

        Raises:
            ValueError: `n` is negative or above 2**63 - 1. Use `registry.updown` for a value that may fall.
            TypeError: `n` is not a whole number.
        """
        if n.__class__ is not int:
            n = as_count(n)
        if n < 0 or n > MAX_COUNT:
            amount = "more than 2**63 - 1 at once" if n > 0 else n
            raise ValueError(f"the counter {self.name!r} can't grow by {amount}; use registry.updown for what may fall")
        amounts = self._amounts
        amounts.append(n)
        if len(amounts) >= BUFFER:
            self._add_up()

    @property
    def count(self) -> int:
        """The count of this process."""
        if len(self._amounts) > FEW:
            self._add_up()
        return sum(self._amounts[:])

    def collect(self, *, views: bool) -> record.Counter:  # noqa: ARG002 - used by distributions
        """Return the count as a record struct."""
        return record.Counter(name=self.name, tags=self.tags, count=self.count)

    def reset_after_fork(self) -> None:
        """Count from zero again."""
        self._lock = Lock()
        self._amounts = [0]  # the sum so far, and the increments since

    def _add_up(self) -> None:
        run_locked(self._lock, self._replace)

    def _replace(self) -> None:
        # Appending, copying and replacing a slice are atomic, with and without the GIL, so each copy of the list has
        # every increment once. Only one thread replaces at a time; the others need not wait for it.
        amounts = self._amounts
        size = len(amounts)
        amounts[:size] = [sum(amounts[:size])]


class UpDownCounter(Metric):
    """A number that goes up and down, such as open connections or running jobs. It is summed over living instances."""

    kind: ClassVar[str] = "updown"
    __slots__ = ("_lock", "_value")

    _value: float

    def __init__(self, name: str, tags: Mapping[str, str]) -> None:
        super().__init__(name, tags)
        self.reset_after_fork()

    def inc(self, n: float = 1) -> None:
        """Add `n`, which may be negative.

        Raises:
            ValueError: `n` is an integer beyond ±(2**63 - 1), or the value would not be a finite number.
            TypeError: `n` is not a real number.
        """
        if n.__class__ is not int and n.__class__ is not float:
            n = as_number(n)
        if n.__class__ is int and not -MAX_COUNT <= n <= MAX_COUNT:
            raise ValueError(f"the up-down counter {self.name!r} can't change by more than 2**63 - 1 at once")
        with self._lock:
            # No function is called here: after a call Python may run a signal handler or a finalizer, and if that
            # updated this up-down counter, its change would be lost.
            value = self._value + n
            is_finite = n.__class__ is int or value - value == 0  # NaN for NaN and infinity
            if is_finite:
                self._value = value
        if not is_finite:
            raise ValueError(f"the up-down counter {self.name!r} can't change by {n} to {value}; use finite numbers")

    def dec(self, n: float = 1) -> None:
        """Subtract `n`. Raises what `inc` raises."""
        self.inc(-n)

    @property
    def value(self) -> float:
        """The current value: an int as long as only integers were added."""
        return self._value

    def collect(self, *, views: bool) -> record.UpDown:  # noqa: ARG002 - used by distributions
        """Return the value as a record struct."""
        return record.UpDown(name=self.name, tags=self.tags, value=self._value)

    def reset_after_fork(self) -> None:
        """Count from zero again: the parent process reports its own value."""
        # Not a Lock: Python 3.14 may run a handler after the lock is taken, and the handler may update this counter.
        self._lock = RLock()
        self._value = 0
