"""One batch of one shard: records in, what changed out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from tallystream.aggregator.table.inputs import Record
    from tallystream.aggregator.table.table import Changes, Table


class Republish(NamedTuple):
    """Keys of `metrics-table` and of `metrics-agg` whose records are published once more."""

    keys: Sequence[bytes]
    sums: Sequence[bytes]


def run_batch(
    table: Table,
    records: Sequence[Record],
    *,
    now_ms: int,
    waiting: Collection[str] = (),
    load: Callable[[Record], Record] = lambda record: record,
    republish: Republish | None = None,
) -> Changes:
    """Apply records in (partition, offset) order, then look for silent lives, and for lives to be forgotten.

    `now_ms` is the batch's time by the wall clock. `waiting` are the partitions, as in "metrics:0", of which the batch
    may have left records unread: their lives fall silent by the partition's clock alone, and no life is forgotten. Both
    must be the same when the batch runs again. `load` returns a record with its value, when it is its turn. `republish`
    names keys that are published from the state, whether they change or not.
    """
    if republish is not None:
        table.republish(republish.keys, republish.sums)
    table.begin()
    in_order = sorted(records, key=lambda record: (record.topic, record.partition, record.offset))
    table.apply(map(load, in_order))
    table.seen(records, now_ms)
    table.notice_silence(now_ms, waiting)
    table.note_due(now_ms, waiting)
    if not waiting:
        table.forget(now_ms)
    return table.changes()
