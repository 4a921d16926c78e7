"""Which snapshots a later one supersedes, so that they can be left out: docs/table.md, "Compaction", has the proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.record import Counter, FloatCounter, Histogram, Metric, Position, identity
from tallystream_aggregator.table.arithmetic.metric_types import stored_values
from tallystream_aggregator.table.arithmetic.sketches import encode_sketch

if TYPE_CHECKING:
    from tallystream.record import Snapshot


def is_accepted_completely(snapshot: Snapshot) -> bool:
    """Tell whether the table accepts a snapshot completely if no earlier record matters."""
    metrics = snapshot.metrics
    return len({identity(m.name, m.type, m.tags) for m in metrics}) == len(metrics) and all(map(_is_accepted, metrics))


def supersedes(new: Snapshot, old: Snapshot) -> bool:
    """Tell whether a snapshot of the same part of a life supersedes `old`, which the table accepts completely.

    It does if it has a higher seq and the same metrics in the same order, none of them lower or refused. Then the table
    accepts it completely, too, and it leaves nothing of the old one.
    """
    if new.seq <= old.seq or len(new.metrics) != len(old.metrics) or new.complete != old.complete:
        return False
    for newer, older in zip(new.metrics, old.metrics, strict=True):
        kind = newer.__class__
        if kind is not older.__class__ or newer.name != older.name or newer.tags != older.tags:
            return False
        if kind is Counter:
            if newer.count < older.count:  # type: ignore[union-attr]
                return False
        elif _count_decreases(newer, older) or _range_narrows(newer, older) or not _is_accepted(newer):
            return False
    return True


def _count_decreases(new: Metric, old: Metric) -> bool:
    """Tell whether a count or a position of a newer metric of the same identity is lower."""
    if isinstance(new, Position):
        return new.position < old.position or new.start > old.start  # type: ignore[union-attr]
    if isinstance(new, FloatCounter):
        return new.sum < old.sum  # type: ignore[union-attr]
    return hasattr(new, "count") and new.count < old.count  # type: ignore[union-attr]


def _range_narrows(new: Metric, old: Metric) -> bool:
    """Tell whether a newer histogram or timer has a greater min or a smaller max. Within a life both only widen."""
    if not isinstance(new, Histogram) or not isinstance(old, Histogram):
        return False
    return (old.min is not None and (new.min is None or new.min > old.min)) or (
        old.max is not None and (new.max is None or new.max < old.max)
    )


def _is_accepted(metric: Metric) -> bool:
    """Tell whether the table accepts a metric by itself: its numbers can be summed and its sketch can be read."""
    try:
        stored_values(metric)
        encode_sketch(metric)
    except (ValueError, OverflowError):
        return False
    return True
