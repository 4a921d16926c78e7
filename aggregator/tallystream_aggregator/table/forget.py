"""Take out of the sums, or out of the rows, what is to be forgotten: lives step by step, metrics at once.

A life that has been silent for long is forgotten a step a batch: it is listed, the base takes it in, its rows are
deleted, its list goes. Each step waits for a later batch than the one before, so that what that one wrote to
`metrics-table` is there, whatever became of this one (`rows` has the order). No step changes a sum. A life that is
listed never returns.

A forget record that names a metric (docs/table.md, rule 10) is ordered against the records of its own partition only.
So it takes the metric out of the lives of that partition, which makes the result the same for every cut into batches.
The lives in the forgotten sums are of all partitions, and all of their records are days old: the first record takes all
of them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.table.arithmetic.partial_sums import Base, Partial, Share, fold, hold
from tallystream_aggregator.table.outputs import Event
from tallystream_aggregator.table.rows import Published, base_row, fold_rows, life_key

if TYPE_CHECKING:
    from tallystream_aggregator.table.decode import Forget, Record
    from tallystream_aggregator.table.lives import Lives
    from tallystream_aggregator.table.state import Life, State


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


def forget_metric(lives: Lives, forget: Forget, record: Record, clock: int) -> set[int]:
    """Take metrics out of the lives of the record's partition, in memory and on disk, and of the forgotten sums.

    Return the metrics whose forgotten sums are empty now. A living life has the metric again with its next snapshot.
    """
    numbers = {number for number, metric in enumerate(lives.state.metrics) if forget.has_metric(metric)}
    lives.bring_back_with(numbers, record.clock_name)
    gone: set[int] = set()
    for life in lives:
        if life.partition == record.clock_name and not numbers.isdisjoint(lives.layouts.numbers(life)):
            lives.layouts.open_all(life)
            gone |= _empty(lives, life, numbers & life.rows.keys(), record)
    emptied = _empty_bases(lives, numbers)
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


def _empty_bases(lives: Lives, numbers: set[int]) -> set[int]:
    """Take metrics out of what forgotten lives add up to, and out of the lives that are listed for it."""
    state = lives.state
    found: dict[int, Partial] = {}
    for number in numbers & state.base.keys():
        base = state.base[number]
        if base.lives:
            found[number] = base.held.partial(state.metrics[number][2])
            found[number].forgotten = base.lives
    for life in (leaving.life for leaving in state.leaving):
        for number in numbers & life.rows.keys():
            row = life.rows.pop(number)
            gone = found.setdefault(number, Partial(state.metrics[number][2]))
            gone.replace(None, Share(row.values, current=False, sketch=row.sketch))
            gone.forgotten += 1
    for number, gone in found.items():
        lives.partials.remove(number, gone)
        # A rebuild must not count the listed lives, whose rows are still on `metrics-table`: this base has their lists.
        state.base[number] = Base(0, hold(Partial(gone.kind)), state.fold)
    return set(found)
