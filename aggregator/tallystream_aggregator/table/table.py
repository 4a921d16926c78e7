"""The table of one shard: it applies records one by one, and gives what has changed in the sums and the rows.

Every decision depends only on the records of one instance in offset order, and on the times of their partition. So the
same records give the same table, dead letters and events, whenever its changes are taken.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tallystream.record import ShortForm
from tallystream_aggregator.otlp import decode as otlp
from tallystream_aggregator.table.apply import apply_short_form, apply_snapshot, out_of_bounds
from tallystream_aggregator.table.combiners import ShardSum
from tallystream_aggregator.table.forget import forget_lives, remove_lives, remove_metrics
from tallystream_aggregator.table.life_rows import LifeRows
from tallystream_aggregator.table.limits import RECORD_SIZE, TableSettings
from tallystream_aggregator.table.records.decode import (
    CLOCK_KEY,
    NO_CLOCK_RECORD,
    DecodedSnapshot,
    Message,
    Record,
    read_clock,
    read_key,
    read_value,
    shard_of,
)
from tallystream_aggregator.table.records.outputs import MAX_QUOTED_BYTES, DeadLetter, Event
from tallystream_aggregator.table.records.refusals import RecordRefusals, Refusal
from tallystream_aggregator.table.rows import shard_row
from tallystream_aggregator.table.state import Removed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_aggregator.sums import Sum
    from tallystream_aggregator.table.rows import TableRecord
    from tallystream_aggregator.table.state import State


_FORGET = re.compile(rb'\{\s*(?:"v"\s*:\s*1\s*,\s*)?"forget"\s*:')
"""The begin of a forget record in an OTLP topic."""


class Changes(NamedTuple):
    """What a table has to publish: `totals` of the changed metrics, sorted; dead letters and events in record order.

    A table of several shards has `shard_sums`, the partial sums of this shard, instead of totals. `was_full` tells
    whether something had no room.
    """

    totals: list[Sum]
    dead: list[DeadLetter]
    events: list[Event]
    shard_sums: list[ShardSum]
    was_full: bool


class Table:
    """The table over `state`, which it changes in place, with its `settings`. Not thread-safe."""

    def __init__(self, state: State, settings: TableSettings | None = None) -> None:
        self.state = state
        self.settings = settings or TableSettings()
        self._dead: list[DeadLetter] = []
        self._rows = LifeRows(state, self.settings)
        self._shard_row_changed = False

    def change_settings(self, settings: TableSettings) -> None:
        """Apply the next records with these settings."""
        if settings != self.settings:
            self.settings = settings
            self._rows.change_settings(settings)

    def apply_record(self, record: Record, records: int = 1, message: Message | None = None) -> int:
        """Apply a record that stands for `records`: those that it supersedes, and itself.

        `record.clock_ms` is the time of its partition, `message` the content of its value if that is known already.

        Return the highest value of the short form up to which later records of its run may be left out if a still
        later one is applied; -1 for none. Each of them would be accepted, and replaced by the next.
        """
        refused = RecordRefusals()
        is_own = self._is_own(record)
        run_limit = self._apply_record(record, message, refused, is_own=is_own)
        self.state.records += records if is_own else 0
        if refused:
            letters = refused.letters()
            self._add_dead_letters(record, letters)
            self.state.dead += len(letters)
        return run_limit

    @property
    def waiting(self) -> int:
        """How many parts of lives with rows, dead letters and events wait until they are taken."""
        return len(self._rows.records) + len(self._dead) + len(self._rows.events)

    @property
    def waiting_bytes(self) -> int:
        """The size of the records that are kept for these rows."""
        return self._rows.records.bytes

    def advance(self, partition: str, offset: int, clock_ms: int) -> None:
        """Note that a partition is read up to `offset`, included, and that its time is `clock_ms`."""
        self.state.offsets[partition], self.state.clocks[partition] = offset, clock_ms
        self._shard_row_changed = True

    def outputs(self) -> Changes:
        """Return the changed sums, the dead letters and the events since the last call, and clear them.

        Before that, lives fall silent whose deadline has passed.
        """
        self._rows.notice_silence()
        state, sums = self.state, self._rows.sums
        changed = [(sums.numbers.identity(number), sums[number]) for number in sums.flush()]
        changed += self._rows.lives.instances.flush()
        changed.sort(key=itemgetter(0))
        out_ms = state.out_ms
        totals: list[Sum] = []
        shard_sums: list[ShardSum] = []
        if state.shards > 1:
            shard_sums = [ShardSum(state.shard, metric, partial, out_ms) for metric, partial in changed]
        else:
            offsets = state.offsets_by_topic()
            totals = [partial.row(metric, out_ms, offsets) for metric, partial in changed]
        changes = Changes(totals, self._dead, self._rows.events, shard_sums, self._rows.size.was_full)
        self._dead, self._rows.events, self._rows.size.was_full = [], [], False
        self._rows.drop_unused()
        return changes

    def rows(self) -> list[TableRecord]:
        """Return the rows that changed since the last call, and clear them."""
        rows = self._rows.records.pop()
        if not rows and not self._shard_row_changed:
            return []
        self._shard_row_changed = False
        return [*rows, shard_row(self.state, self._rows.lives.counts())]

    def publish_all(self) -> None:
        """Have the next outputs and rows include all sums and all rows, whether they have changed or not."""
        self._rows.sums.mark_changed(self.state.metrics)
        self._rows.lives.instances.mark_changed()
        self._rows.records.change_all(self._rows.lives)
        self._rows.note_forgotten(self.state.forgotten_sums)
        self._shard_row_changed = True

    @property
    def changed_share(self) -> float:
        """The share of the lives that have changed since the last call of `pop_difference`."""
        return len(self._rows.lives.changed) / max(self._rows.lives.number, 1)

    def pop_difference(self) -> State:
        """Return what changed in the state since the last call, as a state with only these parts (table.storage)."""
        state, rows = self.state, self._rows
        metrics, dropped = rows.metrics.pop_changes()
        lives, gone = rows.lives.pop_changes()
        sums = {n: state.forgotten_sums[n] for n in rows.changed_forgotten & state.forgotten_sums.keys()}
        removed = Removed(gone, dropped, list(rows.changed_forgotten - sums.keys()))
        rows.changed_forgotten = set()
        return msgspec.structs.replace(state, metrics=metrics, lives=lives, removed=removed, forgotten_sums=sums)

    def _is_own(self, record: Record) -> bool:
        """Tell whether this shard counts a record, and refuses it. All shards get clock records, and OTLP topics."""
        if record.topic in self.settings.otlp_topics:
            return shard_of(record.key, self.state.shards) == self.state.shard
        return record.key != CLOCK_KEY or self.state.shard == 0

    def _apply_record(self, record: Record, message: Message | None, refused: RecordRefusals, *, is_own: bool) -> int:
        """Apply one record, and add what is refused of it. Return how far its run may go."""
        if record.topic in self.settings.otlp_topics:  # without clock records
            forget_lives(self._rows, record.partition_name, record.clock_ms)
            if record.value is not None and _FORGET.match(record.value) is None:
                self._apply_otlp(record, refused, is_own=is_own)
            elif is_own:
                return self._apply_keyed(record, message, refused)
        elif record.key == CLOCK_KEY:
            wall_ms = read_clock(record.value)
            if wall_ms is not None:
                forget_lives(self._rows, record.partition_name, min(record.clock_ms, wall_ms))
            elif is_own:
                refused.add(Refusal(NO_CLOCK_RECORD))
        else:
            return self._apply_keyed(record, message, refused)
        return -1

    def _apply_keyed(self, record: Record, message: Message | None, refused: RecordRefusals) -> int:
        """Apply a record whose key is an instance ID. Return how far its run may go."""
        instance = read_key(record.key)
        if isinstance(instance, Refusal):
            refused.add(instance)
        elif record.value is None:
            remove_lives(self._rows, instance, record)
        elif len(record.value) > self.settings.max_record_bytes:
            refused.add(self._refuse_size(record, instance))
        else:
            found = read_value(record.value, self.settings.max_metrics) if message is None else message
            return self._apply_message(instance, found, record, refused)
        return -1

    def _refuse_size(self, record: Record, instance: str) -> Refusal:
        size, limit = len(record.value or b""), self.settings.max_record_bytes
        self._rows.events.append(Event("limit", "", instance, "", record.clock_ms, *record.location, RECORD_SIZE))
        return Refusal(f"limit: the record has {size} bytes; the limit is {limit}")

    def _apply_otlp(self, record: Record, refused: RecordRefusals, *, is_own: bool) -> None:
        """Apply the data of the resources in an OTLP record whose instances are in this shard."""
        value = record.value or b""
        of_no_instance = refused if is_own else RecordRefusals()
        if len(value) > self.settings.max_record_bytes:
            if is_own:
                refused.add(self._refuse_size(record, ""))
            return
        try:
            found = otlp.read(value)
        except otlp.OtlpError as error:
            of_no_instance.add(Refusal(str(error)))
            return
        decoded: list[tuple[str, otlp.ResourceSnapshots]] = []
        room = refused.room
        for data in found:
            instance, app = data.resource.instance, data.resource.app
            if isinstance(instance, otlp.OtlpError):
                of_no_instance.add(Refusal(str(instance)))
            elif shard_of(instance.encode(), self.state.shards) == self.state.shard:
                if isinstance(app, otlp.OtlpError):
                    refused.add(Refusal(str(app)))
                    continue
                decoded.append((instance, otlp.snapshots(data, app, record.timestamp_ms, room)))
                room -= len(decoded[-1][1].rejected)
        for one in decoded:  # after all were decoded, which is faster than in turns
            self._apply_resource(*one, record, refused)

    def _apply_resource(
        self, instance: str, data: otlp.ResourceSnapshots, record: Record, refused: RecordRefusals
    ) -> None:
        """Apply the data of one resource of an OTLP record."""
        refused.add_decoded([Refusal(*rejected) for rejected in data.rejected], data.more_rejected)
        limit = self.settings.max_metrics
        for snapshot, metrics, is_baseline in data.snapshots:
            message = DecodedSnapshot(snapshot, metrics, is_baseline=is_baseline)
            if len(metrics) > limit:
                message.metrics, message.over_limit = [*metrics][:limit], len(metrics) - limit
            apply_snapshot(self._rows, instance, message, record, refused)

    def _apply_message(self, instance: str, message: Message, record: Record, refused: RecordRefusals) -> int:
        if isinstance(message, ShortForm):
            return apply_short_form(self._rows, instance, message, record, refused)
        if isinstance(message, Refusal):
            refused.add(message)
        elif isinstance(message, DecodedSnapshot):
            reason = out_of_bounds(message.snapshot, record.timestamp_ms)
            if reason is None:
                apply_snapshot(self._rows, instance, message, record, refused)
            else:
                refused.add(Refusal(reason))
        elif message.metric is None:
            remove_lives(self._rows, instance, record, message)
        elif message.shards != self.state.shards:
            reason = f"forget: the record is for {message.shards} shards and the table has {self.state.shards}"
            refused.add(Refusal(reason))
        else:
            remove_metrics(self._rows, message, record)
        return -1

    def _add_dead_letters(self, record: Record, refused: Sequence[Refusal]) -> None:
        quotable_bytes = MAX_QUOTED_BYTES
        for reason, metric in refused:
            letter = DeadLetter.quoting(record, reason, metric, quotable_bytes)
            quotable_bytes -= len(letter.record.value or b"") + len((letter.metric or "").encode())
            self._dead.append(letter)
