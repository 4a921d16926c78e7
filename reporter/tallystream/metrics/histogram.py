"""The distribution of a value: a sketch that merges over instances, and a sample for the instance's own view."""

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
    """Count, sum, min, max and sketch of all values, and a sample. Not locked: its owner does that.

    `is_timed` says that the sample has to know when a value came: each comes as (monotonic seconds, value).

    Args:
        reservoir: the sample.
        is_sampled: whether values go into the sample, and the view comes from it; else it comes from the sketch.
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
        self._known: tuple[int, View | None] = (0, None)  # (as of which count, the view)
        self._encoded = (0, self._sketch.encode())  # (as of which count, the sketch in the record's form)

    def keep_sample(self) -> None:
        """Take the values that come from now on into the sample."""
        self.is_sampled, self._known = True, (-1, None)

    def take(self, values: list[Any], now: float) -> None:
        """Take values, not none, seen at `now`; or pairs, each of which says when."""
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
        """Return what the sample says at `now`, or the sketch of all values; None before the first value."""
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
        """Return what merges over instances, by the record's names; with `views` the view at `now`, too."""
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
"""Values taken in before they are worked in together: most updates then cost one append.

Twice as many would save an update a sixth of its time; but what waits is the report's to work in, of all histograms.
"""

MAX_PENDING = 2048
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
        self.reset_after_fork()

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

    def reset_after_fork(self) -> None:
        """Forget all values."""
        self._lock = Lock()
        self._buffer: list[Any] = []  # values; pairs of monotonic seconds and a value where the sample needs them
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
        # A slice and its deletion are one step each, and others only append: no value is lost or taken twice.
        taken = self._buffer[:]
        if taken:
            del self._buffer[: len(taken)]
            self._distribution.take(taken, self._clock.monotonic())
        return len(taken)
