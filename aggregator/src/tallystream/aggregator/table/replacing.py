"""How a snapshot's metrics replace those of the one before, metric by metric: rules 2, 4, 8 and 9."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tallystream.aggregator.table.kinds import falls, merge_values, stored
from tallystream.aggregator.table.sketches import taken
from tallystream.aggregator.table.state import Row
from tallystream.reporter.record import identity

if TYPE_CHECKING:
    from tallystream.aggregator.table.lives import Lives
    from tallystream.aggregator.table.state import Life, MetricId
    from tallystream.reporter.record import Metric, Snapshot

Refused = list[tuple[str, str | None]]
"""(reason, the metric as JSON text or None for the whole record)"""


def replace_all(lives: Lives, life: Life, snapshot: Snapshot, before: int, most: int) -> tuple[Refused, int]:
    """Let each metric replace its row in `life`.

    Return those that are refused, and how many are beyond the `most` that a life may have. `before` is the seq of its
    part's last snapshot, whose rows have been touched.
    """
    refused: Refused = []
    seen: set[MetricId] = set()
    beyond = 0
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
            if len(life.rows) >= most:
                beyond += 1
                continue
            number = lives.number(metric_id)  # only now: what is refused takes no room
            lives.partials.touch(life, (number,))
            life.rows[number] = Row(snapshot.part, snapshot.seq, values, sketch)
        elif row.part != snapshot.part:
            reason = f"the metric was in part {row.part} of this life and is now in part {snapshot.part}"
            refused.append((reason, _text(metric)))
            continue
        elif falls(metric_id[2], row.values, values):
            reason = f"the count fell within a life, from {row.values[0]} to {values[0]}"
            refused.append((reason, _text(metric)))
            continue
        else:
            if row.seq != before:
                lives.partials.touch(life, (number,))
            row.seq, row.sketch = snapshot.seq, sketch
            row.values = merge_values(metric_id[2], row.values, values)
    return refused, beyond


def _text(metric: Metric) -> str:
    return msgspec.json.encode(metric).decode()
