"""Take a metric out of the sums: what a forget record does that names one (docs/table.md, rule 10).

Such a record is ordered against the records of its own partition only. So it takes the metric out of the lives of that
partition, which makes the result the same for every cut into batches. The lives in the forgotten sums are of all
partitions, and all of their records are days old: the first record takes all of them out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.aggregator.table.held import hold
from tallystream.aggregator.table.outputs import Event
from tallystream.aggregator.table.partial import Partial, Share
from tallystream.aggregator.table.retired import Base

if TYPE_CHECKING:
    from tallystream.aggregator.table.inputs import Forget, Record
    from tallystream.aggregator.table.lives import Lives
    from tallystream.aggregator.table.state import Life


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
