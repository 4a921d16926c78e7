"""A life's way out, a step a batch: it has left, the base takes it in, its rows are deleted, its fold is forgotten.

Only the first step changes what the table says. The others wait for a later batch each, so that what the one before
wrote to `metrics-table` is there, whatever became of this one (tallystream.aggregator.table.published).
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from tallystream.aggregator.table.published import FOLD_CHUNK, Published, base_row, fold_key, fold_rows, life_key
from tallystream.aggregator.table.retired import fold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream.aggregator.table.state import Leaving, Life, State


def advance(state: State) -> list[Published]:
    """Move every life that has left one step on, and return the records that say so. Once a batch, at its beginning."""
    rows = [Published(key, None) for key in (*state.forget, *_lists(state.shard, state.settled))]
    rows += [
        Published(key, None) for gone in state.deleting if not _is_back(gone.life, state) for key in _keys(gone.life)
    ]
    numbers = set()
    for leaving in state.leaving:
        for number, row in leaving.life.rows.items():
            kind = state.metrics[number][2]
            state.base[number] = fold(kind, state.base.get(number), row.values, row.sketch, leaving.fold)
            numbers.add(number)
        leaving.life.rows = {}
    rows += [base_row(state.shard, state.metrics[number], state.base[number]) for number in sorted(numbers)]
    state.settled, state.deleting, state.leaving, state.forget = state.deleting, state.leaving, [], []
    return rows


def leave(state: State) -> list[Published]:
    """Close the fold of this batch, if a life has left in it, and return the list of its lives."""
    lives = [leaving.life for leaving in state.leaving if leaving.fold > state.fold]
    if not lives:
        return []
    state.fold += 1
    return fold_rows(state.shard, state.fold, lives)


def everything(state: State) -> list[Published]:
    """Return the records of all bases, and of all folds that are not settled."""
    rows = [base_row(state.shard, state.metrics[number], base) for number, base in sorted(state.base.items())]
    for number, gone in groupby([*state.deleting, *state.leaving], key=lambda leaving: leaving.fold):
        rows += fold_rows(state.shard, number, [leaving.life for leaving in gone])
    return rows


def _keys(life: Life) -> list[bytes]:
    return [life_key(life, part) for part in life.places]


def _is_back(life: Life, state: State) -> bool:
    """Tell whether a program goes on with a life that had retired, by a `prev` that it made up: the row is its own."""
    return any((known.app, known.life) == (life.app, life.life) for known in state.lives.get(life.instance, []))


def _lists(shard: int, settled: list[Leaving]) -> Iterator[bytes]:
    for number, gone in groupby(settled, key=lambda leaving: leaving.fold):
        for chunk in range(0, len(list(gone)), FOLD_CHUNK):
            yield fold_key(shard, number, chunk // FOLD_CHUNK)
