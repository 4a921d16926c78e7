"""All values of a histogram so far: what merges over instances, and the sample of the instance's own view."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from tallystream.reporter._numbers import saturating_sum
from tallystream.reporter.sketch import GrowingSketch, Sketch
from tallystream.reporter.windows import SlidingTimeWindowReservoir

if TYPE_CHECKING:
    from tallystream.reporter.reservoir import Reservoir, View


class Distribution:
    """Count, sum, min, max, sketch and sample. Not locked: its owner does that.

    `is_timed` says that the sample has to know when a value came: each comes as (monotonic seconds, value).
    """

    __slots__ = ("_known", "_max", "_min", "_reservoir", "_sketch", "_sum", "count", "is_timed")

    def __init__(self, reservoir: Reservoir) -> None:
        self.count = 0
        self._reservoir = reservoir
        self.is_timed = isinstance(reservoir, SlidingTimeWindowReservoir)
        self._sum: float = 0.0
        self._min, self._max = inf, -inf
        self._sketch = GrowingSketch()
        self._known: tuple[int, View | None] = (0, None)  # (as of which count, the view)

    def take(self, values: list[Any], now: float) -> None:
        """Take values, not none, seen at `now`; or pairs, each of which says when."""
        if isinstance(self._reservoir, SlidingTimeWindowReservoir):
            self._reservoir.take(values)
            values = [value for _, value in values]
        else:
            self._reservoir.update(values, now)
        self.count += len(values)
        self._sum = saturating_sum(self._sum, values)
        if (least := min(values)) < self._min:
            self._min = least
        if (greatest := max(values)) > self._max:
            self._max = greatest
        self._sketch.add(values)

    def view(self, now: float) -> View | None:
        """Return what the sample says at `now`, None before the first value."""
        return self._reservoir.view(now)

    def sketch(self) -> Sketch:
        """Return a copy of the sketch."""
        return self._sketch.copy()

    def fields(self, now: float, *, views: bool) -> dict[str, Any]:
        """Return what merges over instances, by the record's names; with `views` what the sample says at `now`, too."""
        fields: dict[str, Any] = {
            "count": self.count,
            "sum": self._sum,
            "min": self._min if self.count else None,
            "max": self._max if self.count else None,
            "sketch": self._sketch.encode(),
        }
        if views:
            if self._known[0] != self.count or self.is_timed:
                self._known = self.count, self._reservoir.view(now)
            view = self._known[1]
            fields |= view._asdict() if view else {}
        return fields
