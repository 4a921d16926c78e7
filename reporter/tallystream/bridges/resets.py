"""Makes counts grow that another library resets or removes: within a life no count may fall. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tallystream import record
from tallystream.baselines import by_identity, identity_of, since, until

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream.baselines import Values
    from tallystream.bridges.base import Reading


class _Last(NamedTuple):
    metric: record.Metric
    began: float | None
    read_at: float


class ResetAdjuster:
    """The counts of one source, as they would be had nothing ever been reset.

    A count that is lower than before began again at zero, as Prometheus has it; so did one whose `began` is later than
    the last reading, however high it has grown since. What was counted between the last reading and the reset is lost.

    Args:
        parents: what was counted before this process was forked off, which is the parent's to report.
    """

    def __init__(self, parents: Iterable[Reading] = ()) -> None:
        self._parents: Values = by_identity([reading.metric for reading in parents])
        self._ended: Values = {}
        self._last: dict[record.Identity, _Last] = {}
        for reading in parents:
            self._last[identity_of(reading.metric)] = _Last(reading.metric, reading.began, 0.0)

    def take(self, reading: Reading, now: float) -> record.Metric:
        """Return the metric with everything counted in this process; `now` is in epoch seconds."""
        metric, identity = reading.metric, identity_of(reading.metric)
        last = self._last.get(identity)
        if last is not None and _was_reset(reading, last):
            (ended,) = until([last.metric], self._ended)
            self._ended[identity] = _with_extremes(ended, self._ended.get(identity))
        self._last[identity] = _Last(metric, reading.began, now)
        (grown,) = since(until([metric], self._ended), self._parents)
        if isinstance(grown, record.Histogram) and identity in self._parents:
            return msgspec.structs.replace(grown, min=None, max=None)  # nobody knows which were the parent's
        return _with_extremes(grown, self._ended.get(identity))


def _was_reset(reading: Reading, last: _Last) -> bool:
    before = getattr(last.metric, "count", None)
    if before is None:
        return False
    if getattr(reading.metric, "count", before) < before:
        return True
    # Some collectors work out again each time when they began, and not to the millisecond.
    moved = reading.began is not None and last.began is not None and reading.began > last.began
    return moved and reading.began is not None and reading.began >= last.read_at


def _with_extremes(metric: record.Metric, other: record.Metric | None) -> record.Metric:
    if not isinstance(metric, record.Histogram) or not isinstance(other, record.Histogram):
        return metric
    least = [value for value in (metric.min, other.min) if value is not None]
    greatest = [value for value in (metric.max, other.max) if value is not None]
    return msgspec.structs.replace(metric, min=min(least, default=None), max=max(greatest, default=None))
