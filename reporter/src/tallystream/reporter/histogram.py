"""The distribution of a value: sizes, delays, amounts."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from tallystream.reporter import record
from tallystream.reporter._distribution import Distribution
from tallystream.reporter._numbers import LARGEST, as_number
from tallystream.reporter.metric import Metric
from tallystream.reporter.sampling import DEFAULT_SAMPLING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.reporter.clock import Clock
    from tallystream.reporter.reservoir import View
    from tallystream.reporter.sampling import Sampling
    from tallystream.reporter.sketch import Sketch

BUFFER = 16
"""Values taken in before they are worked in together: most updates then cost one append.

Twice as many would save an update a sixth of its time; but what waits is the report's to work in, of all histograms.
"""

AT_ONCE = 2 * BUFFER
"""The most that an update works in of what piled up: more than it brings. A timer's that sees a tick works in all."""

MOST_WAITING = 2048
"""Values in the buffer from which on an update waits for who is working some in, and does a snapshot's work."""


class Held(msgspec.Struct, gc=False):
    """The values of one moment, for a snapshot: what was worked in, and so many that wait; `record` is of them.

    `views` says whether that is to have the view of the sample.
    """

    waiting: int
    now: float
    views: bool
    record: record.Histogram | None = None


class Histogram(Metric):
    """Count, sum, min, max and a sketch of all values, and a view of the recent ones (mean, stddev, p50 … p999).

    The sketch gives quantiles within 1 % of the exact ones, and merges over instances (see `sketch.py`). The view is
    that of a sample, `sampling` says which (see `sampling.py`).
    """

    kind: ClassVar[str] = "histogram"
    _held: Held | None
    _last: dict[bool, record.Histogram]  # with a view or without: the record of the present values, if it is that alone
    __slots__ = ("_buffer", "_clock", "_distribution", "_held", "_last", "_lock", "sampling")

    def __init__(self, name: str, tags: Mapping[str, str], clock: Clock, sampling: Sampling = DEFAULT_SAMPLING) -> None:
        super().__init__(name, tags)
        self._clock = clock
        self.sampling = sampling
        self.start_anew()

    def update(self, value: float) -> None:
        """Take one value.

        Raises:
            ValueError: it is NaN or infinite, which would spoil the sum for good.
            TypeError: it is no real number.
        """
        if value.__class__ is not float:
            value = as_number(value)
        if not -LARGEST <= value <= LARGEST:
            raise ValueError(f"the {self.kind} {self.name!r} can't take {value}; give it finite numbers")
        if self._distribution.is_timed:
            self._put(value, self._clock.monotonic())
            return
        buffer = self._buffer
        buffer.append(value)
        if len(buffer) >= BUFFER:
            self._make_room()

    @property
    def count(self) -> int:
        """How many values were taken in this process."""
        with self._lock:
            self._work_in()
            return self._distribution.count

    def view(self) -> View | None:
        """Return what the sample says of recent values, None before the first."""
        with self._lock:
            self._work_in()
            return self._distribution.view(self._clock.monotonic())

    def sketch(self) -> Sketch:
        """Return a copy of the sketch of all values."""
        with self._lock:
            self._work_in()
            return self._distribution.sketch()

    def read(self) -> record.Histogram:
        """Return count, sum, min, max, the sketch and the view in the record's form."""
        with self._lock:
            self._work_in()
            return self._record(self._clock.monotonic(), views=True)

    def capture(self, *, views: bool = True) -> record.Histogram | Held:
        """Hold the present values: they are worked in and encoded later, before those that come after them."""
        with self._lock:
            if self._held is not None:
                self._finish(self._held)
            waiting = len(self._buffer)
            if not waiting and views in self._last:
                return self._last[views]
            # Told here, not before, the time is not before that of values which another thread worked in just now.
            held = self._held = Held(waiting, self._clock.monotonic(), views)
            return held

    def captured(self, held: record.Histogram | Held) -> record.Histogram:
        """Return what was held in the record's form."""
        if not isinstance(held, Held):
            return held
        with self._lock:
            return held.record or self._finish(held)

    def start_anew(self) -> None:
        """Forget all values."""
        self._lock = Lock()
        self._buffer: list[Any] = []
        self._distribution = Distribution(self.sampling.new(self._clock.monotonic()))
        self._held = None
        self._last = {}

    def _put(self, value: float, now: float) -> None:
        buffer = self._buffer
        buffer.append((now, value) if self._distribution.is_timed else value)
        if len(buffer) >= BUFFER:
            self._make_room()

    def _make_room(self) -> None:
        # While a snapshot holds values, and while another thread works some in, they are left to the updates that come
        # after, but not without end: memory is bounded.
        many = len(self._buffer) >= MOST_WAITING
        if (self._held is None or many) and self._lock.acquire(many):
            try:
                if self._held is None:
                    self._take(AT_ONCE, self._clock.monotonic())
                else:
                    self._finish(self._held)
            finally:
                self._lock.release()

    def _finish(self, held: Held) -> record.Histogram:
        self._held = None
        self._take(held.waiting, held.now)
        held.record = self._record(held.now, views=held.views)
        return held.record

    def _record(self, now: float, *, views: bool) -> record.Histogram:
        made = self._distribution.record(record.Histogram, self.name, self.tags)
        if views:
            made = msgspec.structs.replace(made, **self._distribution.view_fields(now))
        if not (views and self._distribution.is_timed):
            self._last[views] = made
        return made

    def _work_in(self) -> None:
        if self._held is not None:  # a snapshot's values come first, and by themselves
            self._finish(self._held)
        self._take(len(self._buffer), self._clock.monotonic())

    def _take(self, most: int, now: float) -> int:
        # A slice and its deletion are one step each, and others only append: no value is lost or taken twice.
        taken = self._buffer[:most]
        if taken:
            del self._buffer[: len(taken)]
            self._last.clear()
            self._distribution.take(taken, now)
        return len(taken)
