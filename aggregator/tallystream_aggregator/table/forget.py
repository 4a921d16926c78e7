"""Forget metrics by a forget record.

A forget record that names a metric (docs/table.md, rule 10) is ordered only against the records of its own partition.
So it removes the metric from the lives of that partition, and the result does not depend on the order in which
partitions are read. Forgotten sums include lives of all partitions, whose records are days old. The first such record
removes the metric from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.table.arithmetic.partial_sums import PartialSum
from tallystream_aggregator.table.outputs import Event

if TYPE_CHECKING:
    from tallystream_aggregator.table.decode import Forget, Record
    from tallystream_aggregator.table.lives import Lives
    from tallystream_aggregator.table.state import Life


def forget_metric(lives: Lives, forget: Forget, record: Record) -> set[int]:
    """Remove metrics from the lives of the record's partition and from the forgotten sums.

    Return the metrics whose forgotten sums are empty now. A living life has the metric again with its next snapshot.
    """
    numbers = {number for number, metric in enumerate(lives.state.metrics) if forget.has_metric(metric)}
    removed: set[int] = set()
    for life in lives:
        if life.partition == record.partition_name and not numbers.isdisjoint(lives.layouts.numbers(life)):
            lives.layouts.blocks_to_rows(life)
            removed |= _remove_metrics(lives, life, numbers & life.rows.keys())
    emptied = _remove_from_forgotten(lives, numbers)
    for app, name in sorted({lives.state.metrics[number][:2] for number in removed | emptied}):
        lives.events.append(Event("forget", app, "", "", record.clock_ms, *record.location, name))
    return emptied


def _remove_metrics(lives: Lives, life: Life, numbers: set[int]) -> set[int]:
    if numbers:
        lives.mark_dirty(life.instance)
        lives.sums.mark_dirty(life, numbers)
    for number in numbers:
        lives.publish(life, life.rows.pop(number).part)
    return numbers


def _remove_from_forgotten(lives: Lives, numbers: set[int]) -> set[int]:
    """Remove metrics from the forgotten sums."""
    state = lives.state
    removed = {number for number in numbers & state.forgotten_sums.keys() if state.forgotten_sums[number].forgotten}
    for number in removed:
        lives.sums.subtract_forgotten(number, state.forgotten_sums[number])
        state.forgotten_sums[number] = PartialSum(state.metrics[number][2])
    return removed
