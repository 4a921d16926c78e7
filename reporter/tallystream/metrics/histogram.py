"""The distribution of a value: sizes, delays, amounts."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

from tallystream import record
from tallystream.metrics.base import Metric
from tallystream.metrics.distribution import Distribution
from tallystream.metrics.sampling import DEFAULT_SAMPLING
from tallystream.validation import LARGEST, as_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.clock import Clock
    from tallystream.metrics.reservoir import View
    from tallystream.metrics.sampling import Sampling
    from tallystream.metrics.sketch import Sketch

BUFFER = 16
"""Values taken in before they are worked in together: most updates then cost one append.

Twice as many would save an update a sixth of its time; but what waits is the report's to work in, of all histograms.
"""

MOST_WAITING = 2048
"""Values in the buffer from which on an update waits for the thread that works some in: memory is bounded."""


class Histogram(Metric):
    """Count, sum, min, max and a sketch of all values, and a view of the recent ones (mean, stddev, p50 … p999).

    The sketch gives quantiles within 0.54 % of the exact ones, and merges over instances (see `sketch.py`). Where a
    sample is kept, the view is that of the sample; `sampling` says which (see `sampling.py`). Else it is that of the
    sketch.
    """

    kind: ClassVar[str] = "histogram"
    __slots__ = ("_buffer", "_clock", "_distribution", "_is_sampled", "_lock", "sampling")

    def __init__(self, name: str, tags: Mapping[str, str], clock: Clock, sampling: Sampling = DEFAULT_SAMPLING) -> None:
        super().__init__(name, tags)
        self._clock = clock
        self.sampling = sampling
        self._is_sampled = False
        self.start_anew()

    def update(self, value: float) -> None:
        """Take one value.

        Raises:
            ValueError: it is NaN, infinite, or of a magnitude above 1e150.
            TypeError: it is no real number.
        """
        if value.__class__ is not float:
            value = as_number(value)
        if not -LARGEST <= value <= LARGEST:
            raise ValueError(f"the {self.kind} {self.name!r} can't take {value}; use -1e150 to 1e150")
        self._put((self._clock.monotonic(), value) if self._distribution.is_timed else value)

    @property
    def count(self) -> int:
        """How many values were taken in this process."""
        with self._lock:
            self._work_in()
            return self._distribution.count

    def view(self) -> View | None:
        """Return what the sample says of recent values, or the sketch of all; None before the first."""
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
        return self.collect(views=True)

    def collect(self, *, views: bool) -> record.Histogram:
        """Return the same; without `views` it has no view."""
        with self._lock:
            self._work_in()
            fields = self._distribution.fields(self._clock.monotonic(), views=views)
        return record.Histogram(name=self.name, tags=self.tags, **fields)

    def keep_sample(self) -> None:
        """Keep a sample of the values that come from now on, and take the view from it."""
        if not self._is_sampled:
            with self._lock:
                self._is_sampled = True
                self._distribution.keep_sample()

    def start_anew(self) -> None:
        """Forget all values."""
        self._lock = Lock()
        self._buffer: list[Any] = []  # values; pairs of monotonic seconds and a value where the sample needs them
        self._distribution = Distribution(self.sampling.new(self._clock.monotonic()), is_sampled=self._is_sampled)

    def _put(self, value: float | tuple[float, float]) -> None:
        buffer = self._buffer
        buffer.append(value)
        if len(buffer) >= BUFFER and self._lock.acquire(blocking=len(buffer) >= MOST_WAITING):
            try:
                self._work_in()
            finally:
                self._lock.release()

    def _work_in(self) -> int:
        # A slice and its deletion are one step each, and others only append: no value is lost or taken twice.
        taken = self._buffer[:]
        if taken:
            del self._buffer[: len(taken)]
            self._distribution.take(taken, self._clock.monotonic())
        return len(taken)
