"""Forget metrics by a forget record.

A forget record that names a metric (docs/table.md, rule 10) is ordered only against the records of its own partition.
So it removes the metric from the lives of that partition, and the result does not depend on the order in which
partitions are read. Forgotten sums include lives of all partitions, whose records are days old. The first such record
that is read removes the metric from them, and makes no event of it: which record that is depends on the order.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tallystream_aggregator.table.records.outputs import Event

if TYPE_CHECKING:
    from tallystream_aggregator.table.lives import Lives
    from tallystream_aggregator.table.records.decode import Forget, Record
    from tallystream_aggregator.table.state import Life


def forget_metric(lives: Lives, forget: Forget, record: Record) -> set[int]:
    """Remove metrics from the lives of the record's partition and from the forgotten sums.

    Return the metrics whose forgotten sums are gone now. A living life has the metric again with its next snapshot.
    """
    state = lives.state
    numbers = lives.numbers.named(forget)
    own: dict[Life, set[int]] = defaultdict(set)
    for number in lives.holders.among(numbers, record.partition_name):
        for life in lives.holders.of(number, record.partition_name):
            own[life].add(number)
    removed: set[int] = set()
    for life, rows in own.items():
        lives.will_change(life)
        lives.blocks_to_rows(life)
        lives.remove_rows(life, rows)
        removed |= rows
    emptied = numbers & state.forgotten_sums.keys()
    for number in emptied:
        lives.sums.subtract_forgotten(number, state.forgotten_sums.pop(number))
    lives.release(emptied)
    for app, name in sorted({state.metrics[number][:2] for number in removed}):
        lives.events.append(Event("forget", app, "", "", record.clock_ms, *record.location, name))
    return emptied
