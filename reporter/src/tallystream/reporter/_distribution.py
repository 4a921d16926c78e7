"""All values of a histogram so far: what merges over instances, and the sample of the instance's own view."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Any

from tallystream.reporter.sketch import GrowingSketch, Sketch
from tallystream.reporter.windows import SlidingTimeWindowReservoir

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream.reporter.reservoir import Reservoir, View


class Distribution:
    """Count, sum, min, max, sketch and sample. Not locked: its owner does that.

    `is_timed` says that the sample has to know when a value came: each comes as (monotonic seconds, value).
    """

    __slots__ = ("_known", "_max", "_min", "_reservoir", "_sketch", "_sum", "count", "is_timed")

    def __init__(self, reservoir: Reservoir) -> None:
        self.count = 0
        self.is_timed = isinstance(reservoir, SlidingTimeWindowReservoir)
        self._reservoir = reservoir
        self._sum: float = 0.0
        self._min: float | None = None
        self._max: float | None = None
        self._sketch = GrowingSketch()
        self._known: tuple[int, dict[str, Any]] = (0, {})  # (as of which count, the view)

    def take(self, values: Sequence[Any], now: float) -> None:
        """Take values, not none, seen at `now`; or pairs, each of which says when."""
        reservoir = self._reservoir
        if isinstance(reservoir, SlidingTimeWindowReservoir):
            reservoir.take(values)
            values = [value for _, value in values]
        else:
            reservoir.update(values, now)
        self.count += len(values)
        self._sum += fsum(values)
        least, greatest = min(values), max(values)
        self._min = least if self._min is None or least < self._min else self._min
        self._max = greatest if self._max is None or greatest > self._max else self._max
        self._sketch.add(values)

    def view(self, now: float) -> View | None:
        """Return what the sample says at `now`, None before the first value."""
        return self._reservoir.view(now)

    def sketch(self) -> Sketch:
        """Return a copy of the sketch."""
        return self._sketch.copy()

    def fields(self, now: float, *, views: bool) -> dict[str, Any]:
        """Return what the record has of it, by the record's names; with `views` what the sample says as well."""
        fields = {
            "count": self.count,
            "sum": self._sum,
            "min": self._min,
            "max": self._max,
            "sketch": self._sketch.encode(),
        }
        if views:
            fields |= self._view_fields(now)
        return fields

    def _view_fields(self, now: float) -> dict[str, Any]:
        count, known = self._known
        if count != self.count or self.is_timed:
            recent = self._reservoir.view(now)
            known = recent._asdict() if recent else {}
            self._known = (self.count, known)
        return known
