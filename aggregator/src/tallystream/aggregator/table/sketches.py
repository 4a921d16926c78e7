"""Quantiles over all lives, from merged DDSketches (rule 7): which sketch is taken, and what many of them say together.

State keeps a sketch as the record had it, in base64. It is decoded when it is taken, since it must agree with the
metric's count, and when it enters or leaves the sum of its metric: what a batch costs depends on the lives that it
touches, not on those that there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.reporter.record import Histogram, Metric
from tallystream.reporter.sketch import Bins, Sketch

if TYPE_CHECKING:
    from tallystream.aggregator.table.metric_types import Totals, Value

SKETCHED = frozenset({"histogram", "timer"})
SHARES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}
MAX_SKETCH = 65_536
"""Characters of an encoded sketch: more than one with all its bins full can have."""


def taken(metric: Metric) -> str | None:
    """Return the metric's sketch, None where it has none.

    Raises:
        ValueError: it is too large, can't be read, or stands for another number of values than the metric's count.
    """
    if not isinstance(metric, Histogram) or metric.sketch is None:
        return None
    size = len(metric.sketch)
    if size > MAX_SKETCH:
        raise ValueError(f"limit: the sketch has {size} characters, {MAX_SKETCH} at most are taken")
    try:
        count = Sketch.decode(metric.sketch).count
    except ValueError as error:
        raise ValueError(f"the sketch can't be read: {error}") from error
    if count != metric.count:
        raise ValueError(f"the sketch stands for {count} values and the count is {metric.count}")
    return metric.sketch


class Merged:
    """The sketches of many parts, each of which can be taken out again: bins are collapsed only when they are read.

    A sketch keeps the bins nearest to its largest value; as that is no larger than the largest of all, collapsing the
    sum gives what merging the sketches gives.
    """

    __slots__ = ("missing", "negative", "positive", "zeros")

    def __init__(self) -> None:
        self.positive: Bins = {}
        self.negative: Bins = {}
        self.zeros = 0
        self.missing = 0

    def replace(self, old: tuple[Value, str | None] | None, new: tuple[Value, str | None] | None) -> None:
        """Take a part out that was taken in, and another one in, each as its count and its sketch; None is nothing."""
        (was_count, was), (count, text) = old or (0, None), new or (0, None)
        self.missing += (text is None and bool(count)) - (was is None and bool(was_count))
        if was == text:
            return
        before = Sketch() if was is None else Sketch.decode(was)
        after = Sketch() if text is None else Sketch.decode(text)
        self.zeros += after.zeros - before.zeros
        _replace(self.positive, before.positive, after.positive)
        _replace(self.negative, before.negative, after.negative)

    def merge(self, other: Merged) -> None:
        """Take in all parts of another one."""
        self.zeros += other.zeros
        self.missing += other.missing
        for bins, others in ((self.positive, other.positive), (self.negative, other.negative)):
            _replace(bins, {}, others)

    def unmerge(self, other: Merged) -> None:
        """Take out all parts of another one, which was merged into this one."""
        self.zeros -= other.zeros
        self.missing -= other.missing
        for bins, others in ((self.positive, other.positive), (self.negative, other.negative)):
            _replace(bins, others, {})

    def quantiles(self) -> Totals:
        """Return p50 to p999 of all that was counted; nothing where a sketch is missing.

        Each is within 1 % of the value with the rank floor(share * (count - 1)).
        """
        if self.missing:
            return {}
        merged = Sketch(dict(self.positive), dict(self.negative), self.zeros)
        merged.merge(Sketch())  # collapses the bins
        if not merged.count:
            return {}
        return dict(zip(SHARES, merged.quantiles(list(SHARES.values())), strict=True))


def _replace(bins: Bins, before: Bins, after: Bins) -> None:
    was = before.get
    changes = [(index, number - was(index, 0)) for index, number in after.items() if number != was(index)]
    changes += [(index, -number) for index, number in before.items() if index not in after]
    for index, change in changes:
        left = bins.get(index, 0) + change
        if left:
            bins[index] = left
        else:
            del bins[index]
