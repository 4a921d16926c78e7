"""Adjusts counts that another library resets or removes, since counts must not fall within a life."""

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
    """The counts of one source without the effect of resets.

    A count was reset if it is lower than before, as in Prometheus, or if its `began` is later than before and not
    before the last reading. What was counted between the last reading and the reset is lost.

    Args:
        parents: the values counted before this process was forked, which the parent reports.
    """

    def __init__(self, parents: Iterable[Reading] = ()) -> None:
        self._parents: Values = by_identity([reading.metric for reading in parents])
        self._ended: Values = {}
        self._last: dict[record.Identity, _Last] = {}
        for reading in parents:
            self._last[identity_of(reading.metric)] = _Last(reading.metric, reading.began, 0.0)

    def take(self, reading: Reading, now: float) -> record.Metric:
        """Return the metric with all counts of this process; `now` is in epoch seconds."""
        metric, identity = reading.metric, identity_of(reading.metric)
        last = self._last.get(identity)
        if last is not None and _was_reset(reading, last):
            (ended,) = until([last.metric], self._ended)
            self._ended[identity] = _with_extremes(ended, self._ended.get(identity))
        self._last[identity] = _Last(metric, reading.began, now)
        (grown,) = since(until([metric], self._ended), self._parents)
        if isinstance(grown, record.Histogram) and identity in self._parents:
            return msgspec.structs.replace(grown, min=None, max=None)  # they may be the parent's
        return _with_extremes(grown, self._ended.get(identity))


def _was_reset(reading: Reading, last: _Last) -> bool:
    before = getattr(last.metric, "count", None)
    if before is None:
        return False
    if getattr(reading.metric, "count", before) < before:
        return True
    # Some collectors compute `began` again at each reading, with small differences.
    moved = reading.began is not None and last.began is not None and reading.began > last.began
    return moved and reading.began is not None and reading.began >= last.read_at


def _with_extremes(metric: record.Metric, other: record.Metric | None) -> record.Metric:
    if not isinstance(metric, record.Histogram) or not isinstance(other, record.Histogram):
        return metric
    least = [value for value in (metric.min, other.min) if value is not None]
    greatest = [value for value in (metric.max, other.max) if value is not None]
    return msgspec.structs.replace(metric, min=min(least, default=None), max=max(greatest, default=None))
