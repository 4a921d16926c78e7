"""How a snapshot's metrics replace those of the one before, metric by metric: rules 2, 4, 8 and 9."""

from __future__ import annotations

import operator
from array import array
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from tallystream.aggregator.table.kinds import Values, falls, merge_values, stored
from tallystream.aggregator.table.layouts import counts_of, size
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


def replace_block(lives: Lives, life: Life, snapshot: Snapshot) -> Refused | None:
    """Let a newer snapshot replace the block of its part, and its other metrics their rows; return what is refused.

    None where the block can't be replaced as a whole: there is none, the metrics are others, or a count falls.
    """
    block = life.blocks.get(snapshot.part)
    layout = None if block is None else lives.layouts.of(block)
    if block is None or layout is None or not layout.fits(snapshot.metrics):
        return None
    counts = layout.counts(snapshot.metrics)
    differences = list(map(operator.sub, counts, counts_of(block)))
    if min(differences, default=0) < 0:
        return None
    lives.partials.shift(life, layout, differences)
    block.counts = array("q", counts).tobytes()
    before = life.parts[snapshot.part]
    refused: Refused = []
    for place, number in layout.others:
        metric = snapshot.metrics[place]
        if life.rows[number].seq == before:  # it is current, and is not any more where it is refused
            lives.partials.touch(life, (number,))
        try:
            values, sketch = stored(metric), taken(metric)
        except (OverflowError, ValueError) as error:
            refused.append((_why(error), _text(metric)))
            continue
        fault = _replace(lives, life, snapshot, number, values, sketch=sketch, before=before)
        if fault is not None:
            refused.append((fault, _text(metric)))
    return refused


def replace_all(
    lives: Lives, life: Life, snapshot: Snapshot, before: int, room: Room
) -> tuple[Refused, Counter[str], list[int]]:
    """Let each metric replace its row in `life`, whose part has no block.

    Return those that are refused, how many are beyond each limit that `room` knows, and the numbers of all others.
    `before` is the seq of its part's last snapshot, whose rows have been touched: where it is not older, only metrics
    that it lacks are replaced.
    """
    refused: Refused = []
    seen: set[MetricId] = set()
    beyond: Counter[str] = Counter()
    accepted: list[int] = []
    elsewhere = [part for part in life.blocks if part != snapshot.part]
    for metric in snapshot.metrics:
        try:
            values, sketch = stored(metric), taken(metric)
        except (OverflowError, ValueError) as error:
            refused.append((_why(error), _text(metric)))
            continue
        metric_id = (snapshot.app, *identity(metric.name, metric.type, metric.tags))
        if metric_id in seen:
            refused.append(("the snapshot has this metric twice", _text(metric)))
            continue
        seen.add(metric_id)
        number = lives.known(metric_id)
        row = life.rows.get(number)
        if row is None and elsewhere:
            row = lives.layouts.row(life, number)
        if row is None:
            limit = room.limit(size(life), metric_id, known=number >= 0)
            if limit is not None:
                beyond[limit] += 1
                continue
            if number < 0:  # only now: what is refused takes no room
                number = lives.number(metric_id)
                room.take(metric_id)
            lives.partials.touch(life, (number,))
            life.rows[number] = Row(snapshot.part, snapshot.seq, values, sketch)
        elif row.part != snapshot.part:
            moved = f"the metric was in part {row.part} of this life and is now in part {snapshot.part}"
            refused.append((moved, _text(metric)))
            continue
        else:
            fault = _replace(lives, life, snapshot, number, values, sketch=sketch, before=before)
            if fault is not None:
                refused.append((fault, _text(metric)))
                continue
        accepted.append(number)
    return refused, beyond, accepted


def _replace(
    lives: Lives, life: Life, snapshot: Snapshot, number: int, values: Values, *, sketch: str | None, before: int
) -> str | None:
    """Let new values and a sketch replace those of a row, and return None; or return why they are refused."""
    row, kind = life.rows[number], lives.state.metrics[number][2]
    if snapshot.seq > row.seq and falls(kind, row.values, values):
        return f"the count fell within a life, from {row.values[0]} to {values[0]}"
    if row.seq != before or snapshot.seq <= before:
        lives.partials.touch(life, (number,))
    if snapshot.seq > row.seq:
        row.seq, row.sketch, row.values = snapshot.seq, sketch, merge_values(kind, row.values, values)
    elif kind == "position":  # of an older snapshot, too, the position was consumed
        row.values = merge_values(kind, row.values, values)
    return None


def _why(error: OverflowError | ValueError) -> str:
    return str(error) if isinstance(error, ValueError) else "a value is beyond the range of floats"


def _text(metric: Metric) -> str:
    return msgspec.json.encode(metric).decode()
