"""The histogram: a sketch that can be merged over instances, and a sample for the instance's own view."""

from __future__ import annotations

from math import fsum, inf
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

from tallystream import record
from tallystream.metrics.base import Metric
from tallystream.metrics.reservoirs import SlidingTimeWindowReservoir, View, view
from tallystream.metrics.sampling import DEFAULT_SAMPLING
from tallystream.metrics.sketch import Sketch
from tallystream.validation import LARGEST, as_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.clock import Clock
    from tallystream.metrics.reservoirs import Reservoir
    from tallystream.metrics.sampling import Sampling


class Distribution:
    """Count, sum, min, max and sketch of all values, and a sample. Not thread-safe: the caller locks it.

    If `is_timed`, the sample needs the time of each value, and values are pairs of (monotonic seconds, value).

    Args:
        reservoir: the sample.
        is_sampled: whether the sample is used: values are added to it, and the view is computed from it instead of from
            the sketch.
    """

    __slots__ = (
        *("_encoded", "_known", "_max", "_min", "_reservoir", "_sketch", "_sum"),
        *("count", "is_sampled", "is_timed"),
    )

    def __init__(self, reservoir: Reservoir, *, is_sampled: bool) -> None:
        self.count = 0
        self.is_sampled = is_sampled
        self._reservoir = reservoir
        self.is_timed = isinstance(reservoir, SlidingTimeWindowReservoir)
        self._sum: float = 0.0
        self._min, self._max = inf, -inf
        self._sketch = Sketch()
        self._known: tuple[int, View | None] = (0, None)  # (count, the view at that count)
        self._encoded = (0, self._sketch.encode())  # (count, the encoded sketch at that count)

    def keep_sample(self) -> None:
        """Add values to the sample from now on."""
        self.is_sampled, self._known = True, (-1, None)

    def take(self, values: list[Any], now: float) -> None:
        """Add values, at least one, observed at `now`. If `is_timed`, they are pairs with their own times."""
        if isinstance(self._reservoir, SlidingTimeWindowReservoir):
            if self.is_sampled:
                self._reservoir.take(values)
            values = [value for _, value in values]
        elif self.is_sampled:
            self._reservoir.update(values, now)
        self.count += len(values)
        self._sum += fsum(values)
        if (least := min(values)) < self._min:
            self._min = least
        if (greatest := max(values)) > self._max:
            self._max = greatest
        self._sketch.add(values)

    def view(self, now: float) -> View | None:
        """Return the view of the sample at `now`, or of the sketch, or None if there are no values."""
        if self.is_sampled:
            return self._reservoir.view(now)
        found = view(list(self._sketch.copy().pairs()))
        if found is None:
            return None
        quantiles = [min(max(quantile, self._min), self._max) for quantile in found[2:]]
        return View(self._sum / self.count, found.stddev, *quantiles)

    def sketch(self) -> Sketch:
        """Return a copy of the sketch."""
        return self._sketch.copy()

    def fields(self, now: float, *, views: bool) -> dict[str, Any]:
        """Return the mergeable fields of the record by name and, with `views`, those of the view at `now`."""
        if self._encoded[0] != self.count:
            self._encoded = self.count, self._sketch.encode()
        fields: dict[str, Any] = {
            "count": self.count,
            "sum": self._sum,
            "min": self._min if self.count else None,
            "max": self._max if self.count else None,
            "sketch": self._encoded[1],
        }
        if views:
            if self._known[0] != self.count or self.is_timed:
                self._known = self.count, self.view(now)
            if known := self._known[1]:
                fields |= known._asdict()
        return fields


BUFFER = 16
"""The number of buffered values that are processed together, so that most updates cost one append.

A buffer of twice the size would save a sixth of an update's time, but each report must process the rest of all buffers.
"""

MAX_PENDING = 2048
"""The number of buffered values from which an update waits for the thread that processes them, to limit memory."""


class Histogram(Metric):
    """Count, sum, min, max and a sketch of all values, and a view (mean, stddev, p50 … p999).

    The sketch can be merged over instances. Its quantiles have a relative error of at most 0.54 % if the values of each
    sign span less than 19 powers of ten (see `sketch.py`). The view is computed from the sample, usually of recent
    values, if one is kept (`sampling` selects its kind), and otherwise from the sketch of all values.
    """

    kind: ClassVar[str] = "histogram"
    __slots__ = ("_buffer", "_clock", "_distribution", "_is_sampled", "_lock", "sampling")

    def __init__(self, name: str, tags: Mapping[str, str], clock: Clock, sampling: Sampling = DEFAULT_SAMPLING) -> None:
        super().__init__(name, tags)
        self._clock = clock
        self.sampling = sampling
        self._is_sampled = False
        self.reset_after_fork()

    def update(self, value: float) -> None:
        """Add one value.

        Raises:
            ValueError: it is NaN, infinite, or its magnitude is above 1e150.
            TypeError: it is not a real number.
        """
        if value.__class__ is not float:
            value = as_number(value)
        if not -LARGEST <= value <= LARGEST:
            raise ValueError(f"the {self.kind} {self.name!r} can't take {value}; use -1e150 to 1e150")
        self._put((self._clock.monotonic(), value) if self._distribution.is_timed else value)

    @property
    def count(self) -> int:
        """The number of values in this process."""
        with self._lock:
            self._work_in()
            return self._distribution.count

    def view(self) -> View | None:
        """Return the view of the sample, or of the sketch if no sample is kept, or None if there are no values."""
        with self._lock:
            self._work_in()
            return self._distribution.view(self._clock.monotonic())

    def sketch(self) -> Sketch:
        """Return a copy of the sketch of all values."""
        with self._lock:
            self._work_in()
            return self._distribution.sketch()

    def read(self) -> record.Histogram:
        """Return count, sum, min, max, the sketch and the view as a record struct."""
        return self.collect(views=True)

    def collect(self, *, views: bool) -> record.Histogram:
        """Return the same, for a snapshot. Without `views`, it has no view."""
        with self._lock:
            self._work_in()
            fields = self._distribution.fields(self._clock.monotonic(), views=views)
        return record.Histogram(name=self.name, tags=self.tags, **fields)

    def keep_sample(self) -> None:
        """Keep a sample of the values from now on, and compute the view from it."""
        if not self._is_sampled:
            with self._lock:
                self._is_sampled = True
                self._distribution.keep_sample()

    def reset_after_fork(self) -> None:
        """Remove all values."""
        self._lock = Lock()
        self._buffer: list[Any] = []  # values, or pairs of (monotonic seconds, value) if the sample needs times
        self._distribution = Distribution(self.sampling.new(self._clock.monotonic()), is_sampled=self._is_sampled)

    def _put(self, value: float | tuple[float, float]) -> None:
        buffer = self._buffer
        buffer.append(value)
        if len(buffer) >= BUFFER and self._lock.acquire(blocking=len(buffer) >= MAX_PENDING):
            try:
                self._work_in()
            finally:
                self._lock.release()

    def _work_in(self) -> int:
        # Copying and deleting a slice are atomic, and other threads only append: no value is lost or added twice.
        taken = self._buffer[:]
        if taken:
            del self._buffer[: len(taken)]
            self._distribution.take(taken, self._clock.monotonic())
        return len(taken)
