"""How a snapshot's metrics replace those of the one before, metric by metric: rules 2, 4, 8 and 9."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from tallystream.aggregator.table.kinds import Values, falls, merge_values, stored
from tallystream.aggregator.table.sketches import taken
from tallystream.aggregator.table.state import Row
from tallystream.reporter.record import identity

if TYPE_CHECKING:
    from tallystream.aggregator.table.limits import Room
    from tallystream.aggregator.table.lives import Lives
    from tallystream.aggregator.table.state import Life, MetricId
    from tallystream.reporter.record import Metric, Snapshot

Refused = list[tuple[str, str | None]]
"""(reason, the metric as JSON text or None for the whole record)"""


def replace_all(lives: Lives, life: Life, snapshot: Snapshot, before: int, room: Room) -> tuple[Refused, Counter[str]]:
    """Let each metric replace its row in `life`.

    Return those that are refused, and how many are beyond each limit that `room` knows. `before` is the seq of its
    part's last snapshot, whose rows have been touched: where it is not older, only metrics that it lacks are replaced.
    """
    refused: Refused = []
    seen: set[MetricId] = set()
    beyond: Counter[str] = Counter()
    for metric in snapshot.metrics:
        try:
            values, sketch = stored(metric), taken(metric)
        except (OverflowError, ValueError) as error:
            reason = str(error) if isinstance(error, ValueError) else "a value is beyond the range of floats"
            refused.append((reason, _text(metric)))
            continue
        metric_id = (snapshot.app, *identity(metric.name, metric.type, metric.tags))
        if metric_id in seen:
            refused.append(("the snapshot has this metric twice", _text(metric)))
            continue
        seen.add(metric_id)
        number = lives.known(metric_id)
        row = life.rows.get(number)
        if row is None:
            limit = room.limit(len(life.rows), metric_id, known=number >= 0)
            if limit is not None:
                beyond[limit] += 1
                continue
            if number < 0:  # only now: what is refused takes no room
                number = lives.number(metric_id)
                room.take(metric_id)
            lives.partials.touch(life, (number,))
            life.rows[number] = Row(snapshot.part, snapshot.seq, values, sketch)
        else:
            fault = _replace(lives, life, snapshot, number, values, sketch=sketch, before=before)
            if fault is not None:
                refused.append((fault, _text(metric)))
    return refused, beyond


def _replace(
    lives: Lives, life: Life, snapshot: Snapshot, number: int, values: Values, *, sketch: str | None, before: int
) -> str | None:
    """Let new values and a sketch replace those of a row, and return None; or return why they are refused."""
    row, kind = life.rows[number], lives.state.metrics[number][2]
    if row.part != snapshot.part:
        return f"the metric was in part {row.part} of this life and is now in part {snapshot.part}"
    if snapshot.seq > row.seq and falls(kind, row.values, values):
        return f"the count fell within a life, from {row.values[0]} to {values[0]}"
    if row.seq != before or snapshot.seq <= before:
        lives.partials.touch(life, (number,))
    if snapshot.seq > row.seq:
        row.seq, row.sketch, row.values = snapshot.seq, sketch, merge_values(kind, row.values, values)
    elif kind == "position":  # of an older snapshot, too, the position was consumed
        row.values = merge_values(kind, row.values, values)
    return None


def _text(metric: Metric) -> str:
    return msgspec.json.encode(metric).decode()
