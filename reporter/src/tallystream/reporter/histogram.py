"""The distribution of a value: sizes, delays, amounts."""

from __future__ import annotations

from math import fsum, isfinite
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

from tallystream.reporter import record
from tallystream.reporter.metric import Metric
from tallystream.reporter.reservoir import DecayingReservoir, View, view
from tallystream.reporter.sketch import Sketch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tallystream.reporter.clock import Clock

BUFFER = 256
"""Values taken in before they are worked in together: an update then costs one append."""


class Histogram(Metric):
    """Count, sum, min, max and a sketch of all values, and a view of the recent ones (mean, stddev, p50 … p999).

    The sketch gives quantiles within 1 % of the exact ones, and merges over instances (see `sketch.py`).
    """

    kind: ClassVar[str] = "histogram"
    __slots__ = ("_buffer", "_clock", "_count", "_lock", "_max", "_min", "_reservoir", "_sketch", "_sum", "_worked_out")

    def __init__(self, name: str, tags: Mapping[str, str], clock: Clock) -> None:
        super().__init__(name, tags)
        self._clock = clock
        self.start_anew()

    def update(self, value: float) -> None:
        """Take one value.

        Raises:
            ValueError: it is NaN or infinite, which would spoil the sum for good.
        """
        if not isfinite(value):
            raise ValueError(f"the {self.kind} {self.name!r} can't take {value}; give it finite numbers")
        buffer = self._buffer
        buffer.append(value)
        if len(buffer) >= BUFFER:
            with self._lock:
                self._work_in()

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
            sample = self._reservoir.sample()
        return view(sample)

    def sketch(self) -> Sketch:
        """Return a copy of the sketch of all values."""
        with self._lock:
            self._work_in()
            return self._sketch.copy()

    def read(self) -> record.Histogram:
        """Return count, sum, min, max, the sketch and the view in the record's form."""
        return record.Histogram(**self._fields()())

    def capture(self) -> Callable[[], record.Metric | None]:
        """Hold the present values; they are sorted and encoded later."""
        fields = self._fields()
        return lambda: record.Histogram(**fields())

    def start_anew(self) -> None:
        """Forget all values."""
        self._lock = Lock()
        self._buffer: list[float] = []
        self._count = 0
        self._sum: float = 0.0
        self._min: float | None = None
        self._max: float | None = None
        self._sketch = Sketch()
        self._reservoir = DecayingReservoir(self._clock.monotonic())
        self._worked_out: tuple[int, dict[str, Any]] = (0, {})  # (as of which count, sketch and view)

    def _fields(self) -> Callable[[], dict[str, Any]]:
        with self._lock:
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
            if self._worked_out[0] == count:
                known = self._worked_out[1]
                return lambda: fields | known
            sketch, sample = self._sketch.copy(), self._reservoir.sample()

        def work_out() -> dict[str, Any]:
            recent = view(sample)
            known = {"sketch": sketch.encode(), **(recent._asdict() if recent else {})}
            self._worked_out = (count, known)
            return fields | known

        return work_out

    def _work_in(self) -> None:
        # A slice and its deletion are one step each, and others only append: no value is lost or taken twice.
        size = len(self._buffer)
        if not size:
            return
        values = self._buffer[:size]
        del self._buffer[:size]
        self._count += size
        self._sum += fsum(values)
        least, greatest = min(values), max(values)
        self._min = least if self._min is None or least < self._min else self._min
        self._max = greatest if self._max is None or greatest > self._max else self._max
        self._sketch.add(values)
        self._reservoir.update(values, self._clock.monotonic())
