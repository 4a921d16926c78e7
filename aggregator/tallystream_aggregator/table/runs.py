"""Which snapshots a later one supersedes, so that they can be left out: docs/table.md, "Compaction", has the proof."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.record import Counter, Metric
from tallystream_aggregator.table.arithmetic.metric_types import count_falls, merge_values, stored, stored_values

if TYPE_CHECKING:
    from tallystream.record import Snapshot


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
        elif not (_is_accepted(newer) and _replaces(newer, older)):
            return False
    return True


def _replaces(new: Metric, old: Metric) -> bool:
    """Tell whether the values of a newer metric of the same identity leave nothing of the old ones."""
    kind, before, values = new.type, stored_values(old), stored_values(new)
    return not count_falls(kind, before, values) and merge_values(kind, before, values) == values


def _is_accepted(metric: Metric) -> bool:
    """Tell whether the table accepts a metric by itself: its numbers can be summed and its sketch can be read."""
    try:
        stored(metric)
    except ValueError:
        return False
    return True
