"""Forget lives step by step, and metrics by a forget record.

A life without a record for `forget_after` is forgotten in four batches: it is listed, it is added to the forgotten
sums, its rows are deleted, its list is deleted. So the records of each step are on `metrics-table` before the next step
begins, even if a batch is written only in part (table.rows has the order). No step changes a sum. A listed life never
returns.

A forget record that names a metric (docs/table.md, rule 10) is ordered only against the records of its own partition.
So it removes the metric from the lives of that partition, and the result does not depend on how records are divided
into batches. Forgotten sums include lives of all partitions, whose records are days old. The first such record removes
the metric from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.table.arithmetic.partial_sums import (
    Contribution,
    ForgottenSums,
    PartialSum,
    merge_forgotten,
    store_partial_sum,
)
from tallystream_aggregator.table.outputs import Event
from tallystream_aggregator.table.rows import TableRecord, forgetting_rows, forgotten_row, life_key

if TYPE_CHECKING:
    from tallystream_aggregator.table.decode import Forget, Record
    from tallystream_aggregator.table.lives import Lives
    from tallystream_aggregator.table.state import Life, State


def advance_forgetting(state: State) -> list[TableRecord]:
    """Advance every life that is being forgotten by one step, and return the records. A batch begins with this."""
    lists = [row.key for number in state.finished for row in forgetting_rows(state.shard, number, state.lists[number])]
    rows = [TableRecord(key, None) for key in (*state.delete_keys, *lists)]
    rows += [TableRecord(key, None) for listed in state.deleting for key in _keys(listed.life)]
    numbers = set()
    for listed in state.listed:
        for number, row in listed.life.rows.items():
            contribution = Contribution(row.values, current=False, sketch=row.sketch)
            state.forgotten_sums[number] = merge_forgotten(
                state.metrics[number][2], state.forgotten_sums.get(number), contribution, listed.list_id
            )
            numbers.add(number)
        listed.life.rows = {}
    rows += [
        forgotten_row(state.shard, state.metrics[number], state.forgotten_sums[number]) for number in sorted(numbers)
    ]
    for number in state.finished:
        del state.lists[number]
    state.deleting, state.listed, state.delete_keys = state.listed, [], []
    # Lives of a rebuilt list may be at different steps. It is finished when the last of them is deleted.
    state.finished = sorted(state.lists.keys() - {listed.list_id for listed in state.deleting})
    return rows


def close_list(state: State) -> list[TableRecord]:
    """Close the list of this batch and return its records, none if no life was listed."""
    lives = [listed.life for listed in state.listed if listed.list_id > state.list_id]
    if not lives:
        return []
    state.list_id += 1
    state.lists[state.list_id] = [(life.app, life.instance, life.life) for life in lives]
    return forgetting_rows(state.shard, state.list_id, state.lists[state.list_id])


def forgotten_rows(state: State) -> list[TableRecord]:
    """Return the records of all forgotten sums and lists. A list has all of its lives until the last one is deleted."""
    rows = [
        forgotten_row(state.shard, state.metrics[number], forgotten_sums)
        for number, forgotten_sums in sorted(state.forgotten_sums.items())
    ]
    for number, ids in sorted(state.lists.items()):
        rows += forgetting_rows(state.shard, number, ids)
    return rows


def _keys(life: Life) -> list[bytes]:
    return [life_key(life, part) for part in sorted({*life.parts, *life.offsets})]


def forget_metric(lives: Lives, forget: Forget, record: Record, clock: int) -> set[int]:
    """Remove metrics from the lives of the record's partition and from the forgotten sums.

    Return the metrics whose forgotten sums are empty now. A living life has the metric again with its next snapshot.
    """
    numbers = {number for number, metric in enumerate(lives.state.metrics) if forget.has_metric(metric)}
    removed: set[int] = set()
    for life in lives:
        if life.partition == record.partition_name and not numbers.isdisjoint(lives.layouts.numbers(life)):
            lives.layouts.blocks_to_rows(life)
            removed |= _remove_metrics(lives, life, numbers & life.rows.keys(), record)
    emptied = _remove_from_forgotten(lives, numbers)
    for app, name in sorted({lives.state.metrics[number][:2] for number in removed | emptied}):
        lives.events.append(Event("forget", app, "", "", clock, record.location, name))
    return emptied


def _remove_metrics(lives: Lives, life: Life, numbers: set[int], record: Record) -> set[int]:
    # After a rebuild, the rows of a part may include the record already.
    removed = {number for number in numbers if life.offsets.get(life.rows[number].part, -1) < record.offset}
    if removed:
        lives.mark_dirty(life.instance)
        lives.sums.mark_dirty(life, removed)
    for number in removed:
        part = life.rows.pop(number).part
        lives.mark_changed(life, part, record)
    return removed


def _remove_from_forgotten(lives: Lives, numbers: set[int]) -> set[int]:
    """Remove metrics from the forgotten sums and from the listed lives."""
    state = lives.state
    removed: dict[int, PartialSum] = {}
    for number in numbers & state.forgotten_sums.keys():
        forgotten_sums = state.forgotten_sums[number]
        if forgotten_sums.lives:
            removed[number] = forgotten_sums.stored.load(state.metrics[number][2])
            removed[number].forgotten = forgotten_sums.lives
    for life in (listed.life for listed in state.listed):
        for number in numbers & life.rows.keys():
            row = life.rows.pop(number)
            partial = removed.setdefault(number, PartialSum(state.metrics[number][2]))
            partial.replace(None, Contribution(row.values, current=False, sketch=row.sketch))
            partial.forgotten += 1
    for number, partial in removed.items():
        lives.sums.subtract_forgotten(number, partial)
        # These sums name the list, so a rebuild does not count the rows of its lives, which are still on the topic.
        state.forgotten_sums[number] = ForgottenSums(0, store_partial_sum(PartialSum(partial.kind)), state.list_id)
    return set(removed)
