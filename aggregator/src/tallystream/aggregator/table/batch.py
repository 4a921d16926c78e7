"""One batch of one shard: records in, what changed out, and the timer that the shard needs next."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tallystream.aggregator.table.inputs import Record
    from tallystream.aggregator.table.table import Changes, Table


class Timer(NamedTuple):
    """A change of the shard's one timer, in epoch ms of processing time: `replaces` is 0 when none was set."""

    at_ms: int
    replaces: int


class Republish(NamedTuple):
    """Keys of `metrics-table` and of `metrics-agg` whose records are published once more."""

    keys: Sequence[bytes]
    sums: Sequence[bytes]


class Batch(NamedTuple):
    """What a batch leaves: what to publish, and the timer to set, if it is to be changed."""

    changes: Changes
    timer: Timer | None


def run_batch(
    table: Table,
    records: Sequence[Record],
    *,
    now_ms: int,
    expired: bool = False,
    at_end: bool = False,
    load: Callable[[Record], Record] = lambda record: record,
    republish: Republish | None = None,
) -> Batch:
    """Apply records in (partition, offset) order; look for silence where the clocks, or an expired timer, call for it.

    `now_ms` is the batch's processing time, the same when the batch runs again; `at_end` tells whether every partition
    is read to its end, so that lives may be forgotten. `load` returns a record with its value, when it is its turn.
    `republish` names keys that are published from the state, whether they change or not. The timer that is set is never
    later than the next life's deadline; one that is too early is left as it is, and looks again when it expires:
    setting a timer costs a call to the JVM.
    """
    state = table.state
    if republish is not None:
        table.republish(republish.keys, republish.sums)
    before_ms = state.timer_ms
    if now_ms != state.settled_ms:  # rows and a timer may both come in one batch: it begins once
        table.begin()
        state.settled_ms = now_ms
    if records:
        in_order = sorted(records, key=lambda record: (record.topic, record.partition, record.offset))
        table.apply(map(load, in_order))
        table.seen(records, now_ms)
        table.notice_silence()
    if expired:
        state.timer_ms = 0
        table.notice_silence(now_ms)
    if at_end:
        table.forget(now_ms)
    timer = _next_timer(table, now_ms)
    if state.timer_ms != before_ms:
        table.tell_how_far()
    return Batch(table.changes(), timer)


def _next_timer(table: Table, now_ms: int) -> Timer | None:
    state = table.state
    bound_ms = table.no_silence_before_ms()
    if bound_ms is None or 0 < state.timer_ms <= max(bound_ms, now_ms + 1):
        return None
    at_ms = table.next_silence_ms()
    if at_ms is None:
        return None
    wanted = max(at_ms, now_ms + 1)
    if 0 < state.timer_ms <= wanted:
        return None
    timer = Timer(wanted, state.timer_ms)
    state.timer_ms = wanted
    return timer
