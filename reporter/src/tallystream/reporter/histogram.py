"""The distribution of a value: sizes, delays, amounts."""

from __future__ import annotations

from math import fsum
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

from tallystream.reporter import record
from tallystream.reporter._numbers import LARGEST, as_number
from tallystream.reporter.metric import Metric
from tallystream.reporter.sampling import DEFAULT_SAMPLING
from tallystream.reporter.sketch import Sketch
from tallystream.reporter.windows import SlidingTimeWindowReservoir

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tallystream.reporter.clock import Clock
    from tallystream.reporter.reservoir import View
    from tallystream.reporter.sampling import Sampling

BUFFER = 256
"""Values taken in before they are worked in together: an update then costs one append."""


class Histogram(Metric):
    """Count, sum, min, max and a sketch of all values, and a view of the recent ones (mean, stddev, p50 … p999).

    The sketch gives quantiles within 1 % of the exact ones, and merges over instances (see `sketch.py`). The view is
    that of a sample, `sampling` says which (see `sampling.py`).
    """

    kind: ClassVar[str] = "histogram"
    _copied: tuple[int, Sketch, Callable[[], View | None]] | None  # (as of which count, what is to be worked out)
    __slots__ = (
        "_buffer",
        "_clock",
        "_copied",
        "_count",
        "_lock",
        "_max",
        "_min",
        "_reservoir",
        "_sketch",
        "_stamped",
        "_sum",
        "_worked_out",
        "sampling",
    )

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
        if self._stamped is not None:
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
            return self._count

    def view(self) -> View | None:
        """Return what the sample says of recent values, None before the first."""
        with self._lock:
            self._work_in()
            finish = self._reservoir.hold(self._clock.monotonic())
        return finish()

    def sketch(self) -> Sketch:
        """Return a copy of the sketch of all values."""
        with self._lock:
            self._work_in()
            return self._sketch.copy()

    def read(self) -> record.Histogram:
        """Return count, sum, min, max, the sketch and the view in the record's form."""
        with self._lock:
            held = self._held()
        return record.Histogram(**(held() if callable(held) else held))

    def prepare(self) -> None:
        """Work in what was taken in so far, and copy what a capture needs and then finds, if nothing came after."""
        with self._lock:
            self._work_in()
            if self._worked_out[0] != self._count or self._stamped is not None:
                self._copied = self._copy()

    def capture(self) -> record.Metric | Callable[[], record.Metric]:
        """Hold the present values; they are encoded later, if they are not those of the last time."""
        with self._lock:
            held = self._held()
        return (lambda: record.Histogram(**held())) if callable(held) else record.Histogram(**held)

    def start_anew(self) -> None:
        """Forget all values."""
        self._lock = Lock()
        self._buffer: list[float] = []
        self._count = 0
        self._sum: float = 0.0
        self._min: float | None = None
        self._max: float | None = None
        self._sketch = Sketch()
        self._reservoir = self.sampling.new(self._clock.monotonic())
        # (monotonic seconds, value), where the sample has to know when a value came.
        timed = isinstance(self._reservoir, SlidingTimeWindowReservoir)
        self._stamped: list[tuple[float, float]] | None = [] if timed else None
        self._worked_out: tuple[int, dict[str, Any]] = (0, {})  # (as of which count, sketch and view)
        self._copied = None

    def _put(self, value: float, now: float) -> None:
        buffer: list[Any]
        if self._stamped is None:
            buffer = self._buffer
            buffer.append(value)
        else:
            buffer = self._stamped
            buffer.append((now, value))
        if len(buffer) >= BUFFER:
            self._make_room()

    def _make_room(self) -> None:
        # Who finds the lock taken leaves the work to the next one, but not without end: memory is bounded.
        if self._lock.acquire(blocking=len(self._stamped or self._buffer) >= 8 * BUFFER):
            try:
                self._work_in()
            finally:
                self._lock.release()

    def _held(self) -> dict[str, Any] | Callable[[], dict[str, Any]]:
        self._work_in()
        count = self._count
        fields: dict[str, Any] = {
            "name": self.name,
            "tags": self.tags,
            "count": count,
            "sum": self._sum,
            "min": self._min,
            "max": self._max,
        }
        if self._worked_out[0] == count and self._stamped is None:
            return fields | self._worked_out[1]
        copied, self._copied = self._copied, None
        _, sketch, finish = copied if copied and copied[0] == count else self._copy()

        def work_out() -> dict[str, Any]:
            recent = finish()
            known = {"sketch": sketch.encode(), **(recent._asdict() if recent else {})}
            self._worked_out = (count, known)
            return fields | known

        return work_out

    def _copy(self) -> tuple[int, Sketch, Callable[[], View | None]]:
        return self._count, self._sketch.copy(), self._reservoir.hold(self._clock.monotonic())

    def _work_in(self) -> int:
        # A slice and its deletion are one step each, and others only append: no value is lost or taken twice.
        waiting: list[Any] = self._buffer if self._stamped is None else self._stamped
        size = len(waiting)
        if not size:
            return 0
        taken = waiting[:size]
        del waiting[:size]
        reservoir = self._reservoir
        if isinstance(reservoir, SlidingTimeWindowReservoir):
            reservoir.take(taken)
            taken = [value for _, value in taken]
        else:
            reservoir.update(taken, self._clock.monotonic())
        self._count += size
        self._sum += fsum(taken)
        least, greatest = min(taken), max(taken)
        self._min = least if self._min is None or least < self._min else self._min
        self._max = greatest if self._max is None or greatest > self._max else self._max
        self._sketch.add(taken)
        return size
