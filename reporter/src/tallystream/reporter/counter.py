"""Counts: the counter, which only grows, and the up-down counter."""

from __future__ import annotations

from operator import index
from threading import Lock
from typing import TYPE_CHECKING, ClassVar, Self

from tallystream.reporter import record
from tallystream.reporter._numbers import as_number
from tallystream.reporter._ticks import new_ticks, number_in, ticked
from tallystream.reporter.metric import Metric

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


BUFFER = 256
"""Amounts taken in before they are added up together."""

HeldCount = str | tuple[int, str]
"""The ticks of one moment as they show themselves, and, where there is any, the sum beside them.

A text is half the time of a number, and unlike a tuple nothing for the garbage collector to look through.
"""

_ONE = 1


def count_of(held: HeldCount) -> int:
    """Return the count that was held."""
    return number_in(held) if isinstance(held, str) else held[0] + number_in(held[1])


class Counter(Metric):
    """A count that only grows: what happened, how often. Sums over instances, restarts and crashes are exact.

    `inc()` takes no lock and never waits, so it may be called from signal handlers and finalizers too.
    """

    kind: ClassVar[str] = "counter"
    _last: record.Counter | None  # of the last reading
    __slots__ = ("_amounts", "_last", "_lock", "_only_ticks", "_sum", "_ticks")

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
        self._only_ticks = False  # before the amount is there: who looks at the ticks alone misses none
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
        return self.captured(self.capture())

    def capture(self, *, views: bool = True) -> HeldCount:  # noqa: ARG002 - matters to distributions
        """Hold the present count."""
        if self._amounts:  # as in `count`
            with self._lock:
                self._add_up()
        total = self._sum
        return (total, repr(self._ticks)) if total else repr(self._ticks)

    @classmethod
    def capture_all(cls, metrics: Sequence[Self], *, views: bool) -> list[HeldCount]:  # noqa: ARG003
        """Hold the present counts."""
        return [repr(each._ticks) if each._only_ticks else each.capture() for each in metrics]  # noqa: SLF001 - its own

    def captured(self, held: HeldCount) -> record.Counter:
        """Return the count that was held in the record's form."""
        count = count_of(held)
        last = self._last
        if last is None or last.count != count:  # most counters of most snapshots have not moved
            last = self._last = record.Counter(name=self.name, tags=self.tags, count=count)
        return last

    def start_anew(self) -> None:
        """Count from zero again."""
        self._lock = Lock()
        self._ticks = new_ticks()
        self._only_ticks = True  # no amounts beside them, ever
        self._amounts: list[int] = []
        self._sum = 0
        self._last = None

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
