"""What takes rows out of the table: tombstones and forget records (rule 10), and time, by which lives are forgotten.

A forget record that names a metric is ordered only against the records of its own partition. So it removes the metric
from the lives of that partition, and the result does not depend on the order in which partitions are read. Forgotten
sums include lives of all partitions, whose records are days old. The first such record that is read removes the metric
from them, and makes no event of it: which record that is depends on the order.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tallystream_aggregator.table.lives import SHORT_FORM_LIFE
from tallystream_aggregator.table.records.outputs import Event

if TYPE_CHECKING:
    from tallystream_aggregator.table.life_rows import LifeRows
    from tallystream_aggregator.table.records.decode import Forget, Record
    from tallystream_aggregator.table.state import Life


def remove_lives(rows: LifeRows, instance: str, record: Record, forget: Forget | None = None) -> None:
    """Remove the rows of an instance's lives. Lives of snapshots stay as markers of their seqs.

    With `forget`, the content of a forget record, only the lives that it names lose their rows. Sums of forgotten
    lives stay.
    """
    for life in rows.lives.filled(instance, forget):
        rows.lives.will_change(life)
        rows.blocks_to_rows(life)
        if life.rows:
            rows.add_event("tombstone" if forget is None else "forget", life, record)
        rows.remove(life, life.rows)
        life.final = True
        rows.lives.set_living(life, living=False)
        for part in life.parts or (0,):
            rows.include(life, part, record)
        if life.life == SHORT_FORM_LIFE:
            rows.remove_life(life)


def remove_metrics(rows: LifeRows, forget: Forget, record: Record) -> None:
    """Remove metrics from the lives of the record's partition and from the forgotten sums.

    A living life has the metric again with its next snapshot.
    """
    state = rows.state
    numbers = rows.metrics.named(forget)
    own: dict[Life, set[int]] = defaultdict(set)
    for number in rows.holders.among(numbers, record.partition_name):
        for life in rows.holders.of(number, record.partition_name):
            own[life].add(number)
    removed: set[int] = set()
    for life, of_life in own.items():
        rows.lives.will_change(life)
        rows.blocks_to_rows(life)
        rows.remove(life, of_life)
        removed |= of_life
    emptied = numbers & state.forgotten_sums.keys()
    for number in emptied:
        rows.sums.subtract_forgotten(number, state.forgotten_sums.pop(number))
    rows.note_forgotten(emptied)
    rows.release(emptied)
    for app, name in sorted({state.metrics[number][:2] for number in removed}):
        rows.events.append(Event("forget", app, "", "", record.clock_ms, *record.location, name))


def forget_lives(rows: LifeRows, partition: str, now_ms: int) -> None:
    """Forget the lives of a partition that have had no record for too long by `now_ms`.

    Their counts stay in the sums, and their rows are deleted. `now_ms` is never above the partition's clock.
    """
    lives = rows.lives.pop_forgotten(partition, now_ms)
    if not lives:
        return
    rows.sums.apply_changes()
    for life in lives:
        rows.remove_life(life)
        rows.blocks_to_rows(life)
        rows.holders.remove_rows(life, life.rows)
    rows.state.forgotten += len(lives)
    rows.note_forgotten(rows.sums.forget(lives))
    for life in lives:
        rows.release((*life.rows, *life.baselines))
