"""All values of a histogram so far: what merges over instances, and the instance's own view."""

from __future__ import annotations

from math import fsum, inf
from typing import TYPE_CHECKING, Any

from tallystream.metrics.reservoir import View, view
from tallystream.metrics.sketch import Sketch
from tallystream.metrics.windows import SlidingTimeWindowReservoir

if TYPE_CHECKING:
    from tallystream.metrics.reservoir import Reservoir


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
