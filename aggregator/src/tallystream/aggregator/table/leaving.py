"""How a life is forgotten, a step a batch: it is listed, the base takes it in, its rows are deleted, its list goes.

Each step waits for a later batch than the one before, so that what that one wrote to `metrics-table` is there, whatever
became of this one (tallystream.aggregator.table.published). No step changes a sum. A life that is listed never returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.aggregator.table.partial import Share
from tallystream.aggregator.table.published import Published, base_row, fold_rows, life_key
from tallystream.aggregator.table.retired import fold

if TYPE_CHECKING:
    from tallystream.aggregator.table.state import Life, State


def advance(state: State) -> list[Published]:
    """Move every life that is being forgotten a step on, and return the records that say so. Once a batch, at first."""
    lists = [row.key for number in state.finished for row in fold_rows(state.shard, number, state.lists[number])]
    rows = [Published(key, None) for key in (*state.forget, *lists)]
    rows += [Published(key, None) for gone in state.deleting for key in _keys(gone.life)]
    numbers = set()
    for leaving in state.leaving:
        for number, row in leaving.life.rows.items():
            share = Share(row.values, current=False, sketch=row.sketch)
            state.base[number] = fold(state.metrics[number][2], state.base.get(number), share, leaving.fold)
            numbers.add(number)
        leaving.life.rows = {}
    rows += [base_row(state.shard, state.metrics[number], state.base[number]) for number in sorted(numbers)]
    for number in state.finished:
        del state.lists[number]
    state.deleting, state.leaving, state.forget = state.leaving, [], []
    # A rebuilt list may have lives in both: it is finished when the last of them is.
    state.finished = sorted(state.lists.keys() - {gone.fold for gone in state.deleting})
    return rows


def leave(state: State) -> list[Published]:
    """Close the list of this batch, if a life is forgotten in it, and return its records."""
    lives = [leaving.life for leaving in state.leaving if leaving.fold > state.fold]
    if not lives:
        return []
    state.fold += 1
    state.lists[state.fold] = [(life.app, life.instance, life.life) for life in lives]
    return fold_rows(state.shard, state.fold, state.lists[state.fold])


def everything(state: State) -> list[Published]:
    """Return the records of all bases, and of all lists: each with all of its lives until the last one is deleted."""
    rows = [base_row(state.shard, state.metrics[number], base) for number, base in sorted(state.base.items())]
    for number, ids in sorted(state.lists.items()):
        rows += fold_rows(state.shard, number, ids)
    return rows


def _keys(life: Life) -> list[bytes]:
    return [life_key(life, part) for part in sorted({*life.parts, *life.places})]
