"""Forget lives step by step, and metrics by a forget record.

A life without a record for `forget_after` is forgotten in several batches: it is listed, it is added to the forgotten
sums, its rows are deleted, its list is deleted. Each step is made by a later batch than the one before, so the records
of the earlier step are on `metrics-table` even if a batch is written only in part (table.rows has the order). No step
changes a sum. A listed life never returns.

A forget record that names a metric (docs/table.md, rule 10) is ordered only against the records of its own partition.
So it removes the metric from the lives of that partition, and the result does not depend on how records are divided
into batches. Forgotten sums include lives of all partitions, whose records are days old: the first such record removes
the metric from them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.table.arithmetic.partial_sums import (
    Contribution,
    ForgottenSums,
    Partial,
    hold,
    merge_forgotten,
)
from tallystream_aggregator.table.outputs import Event
from tallystream_aggregator.table.rows import TableRecord, forgetting_rows, forgotten_row, life_key

if TYPE_CHECKING:
    from tallystream_aggregator.table.decode import Forget, Record
    from tallystream_aggregator.table.lives import Lives
    from tallystream_aggregator.table.state import Life, State


def advance(state: State) -> list[TableRecord]:
    """Advance every life that is being forgotten by one step, and return the records.

    Call it once, to begin a batch.
    """
    lists = [row.key for number in state.finished for row in forgetting_rows(state.shard, number, state.lists[number])]
    rows = [TableRecord(key, None) for key in (*state.forget, *lists)]
    rows += [TableRecord(key, None) for gone in state.deleting for key in _keys(gone.life)]
    numbers = set()
    for retiring in state.retiring:
        for number, row in retiring.life.rows.items():
            contribution = Contribution(row.values, current=False, sketch=row.sketch)
            state.forgotten_sums[number] = merge_forgotten(
                state.metrics[number][2], state.forgotten_sums.get(number), contribution, retiring.list_id
            )
            numbers.add(number)
        retiring.life.rows = {}
    rows += [
        forgotten_row(state.shard, state.metrics[number], state.forgotten_sums[number]) for number in sorted(numbers)
    ]
    for number in state.finished:
        del state.lists[number]
    state.deleting, state.retiring, state.forget = state.retiring, [], []
    # A rebuilt list may have lives in both: it is finished when the last of its lives is deleted.
    state.finished = sorted(state.lists.keys() - {gone.list_id for gone in state.deleting})
    return rows


def close_list(state: State) -> list[TableRecord]:
    """Close the list of this batch and return its records, or nothing if no life was listed."""
    lives = [retiring.life for retiring in state.retiring if retiring.list_id > state.list_id]
    if not lives:
        return []
    state.list_id += 1
    state.lists[state.list_id] = [(life.app, life.instance, life.life) for life in lives]
    return forgetting_rows(state.shard, state.list_id, state.lists[state.list_id])


def everything(state: State) -> list[TableRecord]:
    """Return the records of all forgotten sums and all lists. A list has all of its lives until the last is deleted."""
    rows = [
        forgotten_row(state.shard, state.metrics[number], forgotten_sums)
        for number, forgotten_sums in sorted(state.forgotten_sums.items())
    ]
    for number, ids in sorted(state.lists.items()):
        rows += forgetting_rows(state.shard, number, ids)
    return rows


def _keys(life: Life) -> list[bytes]:
    return [life_key(life, part) for part in sorted({*life.parts, *life.places})]


def forget_metric(lives: Lives, forget: Forget, record: Record, clock: int) -> set[int]:
    """Remove metrics from the lives of the record's partition, in memory and on disk, and from the forgotten sums.

    Return the metrics whose forgotten sums are empty now. A living life has the metric again with its next snapshot.
    """
    numbers = {number for number, metric in enumerate(lives.state.metrics) if forget.has_metric(metric)}
    lives.bring_back_with(numbers, record.clock_name)
    gone: set[int] = set()
    for life in lives:
        if life.partition == record.clock_name and not numbers.isdisjoint(lives.layouts.numbers(life)):
            lives.layouts.open_all(life)
            gone |= _empty(lives, life, numbers & life.rows.keys(), record)
    emptied = _empty_forgotten(lives, numbers)
    place = (record.topic, record.partition, record.offset)
    for app, name in sorted({lives.state.metrics[number][:2] for number in gone | emptied}):
        lives.events.append(Event("forget", app, "", "", clock, place, name))
    return emptied


def _empty(lives: Lives, life: Life, numbers: set[int], record: Record) -> set[int]:
    # After a rebuild a part's rows may include the record already.
    gone = {number for number in numbers if life.places.get(life.rows[number].part, -1) < record.offset}
    if gone:
        lives.mark(life.instance)
        lives.partials.empty(life, gone)
    for number in gone:
        part = life.rows.pop(number).part
        lives.change(life, part, record)
    return gone


def _empty_forgotten(lives: Lives, numbers: set[int]) -> set[int]:
    """Remove metrics from the forgotten sums and from the listed lives."""
    state = lives.state
    found: dict[int, Partial] = {}
    for number in numbers & state.forgotten_sums.keys():
        forgotten_sums = state.forgotten_sums[number]
        if forgotten_sums.lives:
            found[number] = forgotten_sums.held.partial(state.metrics[number][2])
            found[number].forgotten = forgotten_sums.lives
    for life in (retiring.life for retiring in state.retiring):
        for number in numbers & life.rows.keys():
            row = life.rows.pop(number)
            gone = found.setdefault(number, Partial(state.metrics[number][2]))
            gone.replace(None, Contribution(row.values, current=False, sketch=row.sketch))
            gone.forgotten += 1
    for number, gone in found.items():
        lives.partials.remove(number, gone)
        # The rows of listed lives are still on `metrics-table`. A rebuild does not count them: these sums name the
        # list.
        state.forgotten_sums[number] = ForgottenSums(0, hold(Partial(gone.kind)), state.list_id)
    return set(found)
