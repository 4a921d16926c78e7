"""One batch of one shard, as a function: packed state and records in, packed state and what changed out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tallystream.aggregator.table.published import ShardRow
from tallystream.aggregator.table.state import State, pack, unpack
from tallystream.aggregator.table.table import Changes, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream.aggregator.table.inputs import Record
    from tallystream.aggregator.table.settings import TableSettings


class Timer(NamedTuple):
    """A change of the shard's one timer, in epoch ms of processing time: `replaces` is 0 when none was set."""

    at_ms: int
    replaces: int


class Batch(NamedTuple):
    """What a batch leaves: the state to store, what to publish, and the timer to set, if it is to be changed."""

    packed: bytes
    changes: Changes
    timer: Timer | None


def run_batch(
    packed: bytes | None, records: Sequence[Record], *, now_ms: int, expired: bool = False, settings: TableSettings
) -> Batch:
    """Apply records in (partition, offset) order; look for silence where the clocks, or an expired timer, call for it.

    `now_ms` is the batch's processing time, the same when the batch runs again. The timer that is set is never later
    than the next life's deadline; one that is too early is left as it is, and looks again when it expires: setting a
    timer costs a call to the JVM.

    Raises:
        StateVersionError: `packed` was written by another version of the table, or is damaged.
    """
    state = State() if packed is None else unpack(packed)
    table = Table(state, settings)
    if now_ms != state.settled_ms:  # rows and a timer may both come in one batch: it begins once
        table.begin()
        state.settled_ms = now_ms
    if records:
        table.apply(sorted(records, key=lambda record: (record.topic, record.partition, record.offset)))
        state.seen_ms = now_ms
        table.notice_silence()
    if expired:
        state.timer_ms = 0
        table.notice_silence(max(0, now_ms - state.seen_ms))
    changes = table.changes()
    timer = _next_timer(table, now_ms)
    packed = pack(state)
    for published in changes.rows:
        if isinstance(published.row, ShardRow):
            published.row.state_bytes = len(packed)
    return Batch(packed, changes, timer)


def _next_timer(table: Table, now_ms: int) -> Timer | None:
    left = table.next_silence_ms()
    if left is None:
        return None
    state = table.state
    wanted = max(state.seen_ms + left, now_ms + 1)
    if 0 < state.timer_ms <= wanted:
        return None
    timer = Timer(wanted, state.timer_ms)
    state.timer_ms = wanted
    return timer
