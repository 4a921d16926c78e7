"""What the record says of a histogram's whole life: count, sum, min, max and the sketch of every value."""

from __future__ import annotations

from math import fsum
from typing import Any

from tallystream.reporter.sketch import Sketch

BUFFER = 256
"""Values taken in before they are worked in together."""


class Distribution:
    """All values ever taken, cleared by nothing. Not locked: its owner does that."""

    __slots__ = ("_buffer", "_count", "_max", "_min", "_sketch", "_sum")

    def __init__(self) -> None:
        self._buffer: list[float] = []
        self._count = 0
        self._sum = 0.0
        self._min: float | None = None
        self._max: float | None = None
        self._sketch = Sketch()

    def add(self, value: float) -> None:
        """Take one finite value."""
        self._buffer.append(value)
        if len(self._buffer) >= BUFFER:
            self._work_in()

    def merge(self, earlier: Distribution) -> None:
        """Take everything that another one took."""
        for one in (self, earlier):
            one._work_in()  # noqa: SLF001 - of the same class
        self._count += earlier._count
        self._sum += earlier._sum
        self._min = min((v for v in (self._min, earlier._min) if v is not None), default=None)
        self._max = max((v for v in (self._max, earlier._max) if v is not None), default=None)
        self._sketch.merge(earlier._sketch)

    def fields(self) -> dict[str, Any]:
        """Return count, sum, min, max and sketch as the record names them."""
        self._work_in()
        return {
            "count": self._count,
            "sum": self._sum,
            "min": self._min,
            "max": self._max,
            "sketch": self._sketch.encode(),
        }

    def _work_in(self) -> None:
        values, self._buffer = self._buffer, []
        if not values:
            return
        self._count += len(values)
        self._sum += fsum(values)
        self._min = min(values) if self._min is None else min(self._min, *values)
        self._max = max(values) if self._max is None else max(self._max, *values)
        self._sketch.add(values)
