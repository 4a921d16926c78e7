"""The histogram: a sketch that can be merged over instances, and a sample for the instance's own view."""

from __future__ import annotations

from math import fsum, inf
from threading import Lock, get_ident
from typing import TYPE_CHECKING, ClassVar, TypeVar

from tallystream import record
from tallystream.metrics.base import Metric
from tallystream.metrics.sampling import DecayingReservoir, View, weighted_view
from tallystream.metrics.sketch import Sketch
from tallystream.process.signals import run_locked
from tallystream.validation import LARGEST, as_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream.clock import Clock

_R = TypeVar("_R", bound=record.Histogram)

BUFFER = 16
"""The number of buffered values that are processed together, so that most updates cost one append.

A buffer of twice the size would save a sixth of an update's time, but each report must process the rest of all buffers.
"""

MAX_PENDING = 2048
"""The number of buffered values from which an update waits for the thread that processes them, to limit memory."""


class Histogram(Metric):
    """Count, sum, min, max and a sketch of all values, and a view (mean, stddev, p50 … p999).

    The sketch can be merged over instances. Its quantiles have a relative error of at most 1.1 % if the values of each
    sign span less than 38 powers of ten (see `sketch.py`). The view is computed from the sample of recent values, if
    one is kept, and otherwise from the sketch of all values.
    """

    kind: ClassVar[str] = "histogram"
    __slots__ = (
        *("_buffer", "_clock", "_count", "_encoded_sketch", "_is_adding", "_is_sampled", "_known_view", "_lock"),
        *("_max", "_min", "_pending", "_reservoir", "_sketch", "_sum", "_thread"),
    )

    _known_view: tuple[int, View | None]

    def __init__(self, name: str, tags: Mapping[str, str], clock: Clock) -> None:
        super().__init__(name, tags)
        self._clock = clock
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
        self._append(value)

    @property
    def count(self) -> int:
        """The number of values in this process."""
        with self._lock:
            self._flush()
            return self._count

    def view(self) -> View | None:
        """Return the view of the sample, or of the sketch if no sample is kept, or None if there are no values."""
        with self._lock:
            self._flush()
            return self._view()

    def sketch(self) -> Sketch:
        """Return a copy of the sketch of all values."""
        with self._lock:
            self._flush()
            return self._sketch.copy()

    def collect(self, *, views: bool) -> record.Histogram:
        """Return count, sum, min, max and the sketch as a record struct, with the view if `views`."""
        with self._lock:
            self._flush()
            return self._record(record.Histogram, views=views)

    def keep_sample(self) -> None:
        """Keep a sample of the values from now on, and compute the view from it."""
        if not self._is_sampled:
            with self._lock:
                self._is_sampled, self._known_view = True, (-1, None)

    def reset_after_fork(self) -> None:
        """Remove all values."""
        self._lock = Lock()
        self._buffer: list[float] = []
        self._pending: list[float] = []  # values that have left the buffer, and are being added
        self._is_adding = False
        self._thread = 0  # the last one that had the lock to process values
        self._count = 0
        self._sum: float = 0.0
        self._min, self._max = inf, -inf
        self._sketch = Sketch()
        self._encoded_sketch = (0, self._sketch.encode())  # (count, the encoded sketch at that count)
        self._known_view = (0, None)  # (count, the view at that count)
        self._reservoir = DecayingReservoir()

    def _append(self, value: float) -> None:
        buffer = self._buffer
        buffer.append(value)
        if (size := len(buffer)) >= BUFFER:
            # A finalizer may have interrupted this thread while it has the lock.
            run_locked(self._lock, self._flush, wait=size >= MAX_PENDING and self._thread != get_ident())

    def _flush(self) -> int:
        # Copying and deleting a slice are atomic, and other threads only append: no value is lost or added twice. No
        # signal's handler can raise between the two, since there is no call.
        self._thread = get_ident()
        buffer = self._buffer
        size = len(buffer)
        self._pending += buffer[:size]
        del buffer[:size]
        return self._add_pending() if self._pending else 0

    def _add_pending(self) -> int:
        """Add the pending values, at least one, and return their number.

        If a signal's handler raises meanwhile, the values remain pending, and the next call continues. The sample may
        then lack them.
        """
        values = self._pending
        if (lowest := min(values)) < self._min:
            self._min = lowest
        if (highest := max(values)) > self._max:
            self._max = highest
        added, total = len(values), self._sum + fsum(values)
        # If the last call was interrupted, the sketch already has the first of these values.
        missing = values[self._sketch.count - self._count :] if self._is_adding else values
        self._is_adding = True
        self._sketch.add(missing)
        # Python runs handlers at calls. The next lines have none, so count, sum and sketch agree for each handler.
        self._count += added
        self._sum = total
        self._pending, self._is_adding = [], False
        if self._is_sampled:
            self._reservoir.update(values, self._clock.monotonic())
        return added

    def _view(self) -> View | None:
        if self._is_sampled:
            return self._reservoir.view()
        estimate = weighted_view(list(self._sketch.pairs()))
        if estimate is None:
            return None
        quantiles = [min(max(quantile, self._min), self._max) for quantile in estimate[2:]]
        return View(self._sum / self._count, estimate.stddev, *quantiles)

    def _record(self, kind: type[_R], *, views: bool) -> _R:
        """Return the mergeable fields as a record struct of this kind, with the view if `views`."""
        count = self._count
        if self._encoded_sketch[0] != count:
            self._encoded_sketch = count, self._sketch.encode()
        found = kind(
            name=self.name,
            tags=self.tags,
            count=count,
            sum=self._sum,
            min=self._min if count else None,
            max=self._max if count else None,
            sketch=self._encoded_sketch[1],
        )
        if views:
            if self._known_view[0] != count:
                self._known_view = count, self._view()
            if view := self._known_view[1]:
                for field, value in zip(View._fields, view, strict=True):
                    setattr(found, field, value)
        return found
