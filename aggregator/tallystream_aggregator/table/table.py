"""The table of one shard: it applies records one by one, and gives what has changed in the sums and the rows.

Every decision depends only on the records of one instance in offset order, and on the times of their partition. So the
same records give the same table, dead letters and events, whenever its changes are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tallystream.record import ShortForm
from tallystream_aggregator.otlp import decode as otlp
from tallystream_aggregator.table.apply import RecordApplier
from tallystream_aggregator.table.combiners import ShardSum
from tallystream_aggregator.table.decode import (
    CLOCK_KEY,
    NO_CLOCK_RECORD,
    DecodedSnapshot,
    Forget,
    Message,
    Record,
    Refusal,
    read_clock,
    read_key,
    read_value,
)
from tallystream_aggregator.table.forget import forget_metric
from tallystream_aggregator.table.limits import RECORD_SIZE, TableSettings, limit_letters
from tallystream_aggregator.table.lives import Lives
from tallystream_aggregator.table.outputs import MAX_QUOTED_BYTES, DeadLetter, Event
from tallystream_aggregator.table.rows import forgotten_row, shard_row
from tallystream_aggregator.table.shards import is_otlp, shard_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream_aggregator.sums import Sum
    from tallystream_aggregator.table.rows import TableRecord
    from tallystream_aggregator.table.state import State


class Changes(NamedTuple):
    """What a table has to publish: `totals` of the changed metrics, sorted; dead letters and events in record order.

    A table of several shards has `shard_sums`, the partial sums of this shard, instead of totals.
    """

    totals: list[Sum]
    dead: list[DeadLetter]
    events: list[Event]
    shard_sums: list[ShardSum] = []  # noqa: RUF012 (a tuple's default is never changed)


class Table:
    """The table over `state`, which it changes in place, with its `settings`. Not thread-safe."""

    def __init__(self, state: State, settings: TableSettings | None = None) -> None:
        self.state = state
        self.settings = settings or TableSettings()
        self._dead: list[DeadLetter] = []
        self._lives = Lives(state, self.settings)
        self._applier = RecordApplier(self._lives, self.settings)
        self._shard_row_changed = False
        self._changed_forgotten: set[int] = set()  # since the state was stored
        self._to_publish: set[int] = set()  # of them, since the rows were returned
        self._metrics = len(state.metrics)

    def apply_record(self, record: Record, records: int = 1, message: Message | None = None) -> int:
        """Apply a record that stands for `records`: those that it supersedes, and itself.

        `record.clock_ms` is the time of its partition, `message` the content of its value if that is known already.

        Return the highest value of the short form up to which later records of its run may be left out if a still
        later one is applied; -1 for none. Each of them would be accepted, and replaced by the next.
        """
        self._applier.run_limit = -1
        refused = limit_letters(self._apply_record(record, message))
        if self._counts(record):
            self.state.records += records
        if refused:
            self._add_dead_letters(record, refused)
            self.state.dead += len(refused)
        return self._applier.run_limit

    def advance(self, partition: str, offset: int, clock_ms: int) -> None:
        """Note that a partition is read up to `offset`, included, and that its time is `clock_ms`."""
        self.state.offsets[partition], self.state.clocks[partition] = offset, clock_ms
        self._shard_row_changed = True

    def notice_silence(self) -> None:
        """Mark lives as silent whose deadline has passed by the time of their partition (rule 5)."""
        self._lives.notice_silence()

    def outputs(self) -> Changes:
        """Return the changed sums, the dead letters and the events since the last call, and clear them."""
        state, sums = self.state, self._lives.sums
        numbers = sorted(sums.flush(), key=sums.numbers.identity)
        totals: list[Sum] = []
        shard_sums: list[ShardSum] = []
        if state.shards > 1:
            shard_sums = self.shard_sums(numbers)
        else:
            identity, offsets, out_ms = sums.numbers.identity, state.offsets_by_topic(), state.out_ms
            totals = [sums[number].row(identity(number), out_ms, offsets) for number in numbers]
        changes = Changes(totals, list(self._dead), list(self._lives.events), shard_sums)
        self._dead.clear()
        self._lives.events.clear()
        return changes

    def rows(self) -> list[TableRecord]:
        """Return the rows that changed since the last call, and clear them."""
        rows = self._lives.pop_rows() | {
            row.key: row for row in (forgotten_row(self.state, number) for number in sorted(self._to_publish))
        }
        if not rows and not self._shard_row_changed:
            return []
        self._to_publish, self._shard_row_changed = set(), False
        return [*rows.values(), shard_row(self.state, self._lives.life_counts.counts())]

    def publish_all(self) -> None:
        """Have the next outputs and rows include all sums and all rows, whether they have changed or not."""
        self._lives.sums.force_publish(range(len(self.state.metrics)))
        self._lives.publish_all()
        self._to_publish, self._shard_row_changed = set(self.state.forgotten_sums), True

    def shard_sums(self, numbers: Iterable[int]) -> list[ShardSum]:
        """Return the partial sums of this shard for the sums of these metrics, for the combiners."""
        state, sums = self.state, self._lives.sums
        sums.apply_changes()
        found = dict.fromkeys(map(sums.numbers.of, numbers))
        return [ShardSum(state.shard, sums.numbers.identity(one), sums[one], state.out_ms) for one in found]

    def pop_difference(self) -> State:
        """Return what changed in the state since the last call, as a state with only these parts (table.storage)."""
        state = self.state
        lives = {instance: state.lives.get(instance, []) for instance in self._lives.dirty}
        forgotten_sums = {number: state.forgotten_sums[number] for number in self._changed_forgotten}
        metrics, self._metrics = state.metrics[self._metrics :], len(state.metrics)
        self._lives.dirty, self._changed_forgotten = set(), set()
        return msgspec.structs.replace(state, metrics=metrics, lives=lives, forgotten_sums=forgotten_sums)

    def _apply_record(self, record: Record, message: Message | None) -> list[Refusal]:
        """Apply one record, and return the refusals."""
        if record.topic in self.settings.otlp_topics:  # without clock records
            self._note_forgotten(self._lives.forget(record.partition_name, record.clock_ms))
            if is_otlp(record, self.settings.otlp_topics):
                return self._apply_otlp(record)
            if shard_of(record.key, self.state.shards) != self.state.shard:
                return []
        return self._apply_clock(record) if self._is_clock(record) else self._apply_keyed(record, message)

    def _apply_keyed(self, record: Record, message: Message | None) -> list[Refusal]:
        """Apply a record whose key is an instance ID, and return the refusals."""
        instance = read_key(record.key)
        if isinstance(instance, Refusal):
            return [instance]
        if record.value is None:
            self._applier.apply_tombstone(instance, record)
            return []
        if len(record.value) > self.settings.max_record_bytes:
            return [self._refuse_size(record, instance)]
        if message is None:
            message = read_value(record.value, self.settings.max_metrics)
        return self._apply_message(instance, message, record)

    def _counts(self, record: Record) -> bool:
        """Tell whether this shard counts a record. Clock records and those of OTLP topics are in every shard."""
        if self._is_clock(record):
            return self.state.shard == 0
        is_in_all = record.topic in self.settings.otlp_topics
        return not is_in_all or shard_of(record.key, self.state.shards) == self.state.shard

    def _is_clock(self, record: Record) -> bool:
        return record.key == CLOCK_KEY and record.topic not in self.settings.otlp_topics

    def _apply_clock(self, record: Record) -> list[Refusal]:
        """Forget lives by a clock record, which every shard has. One of the shards refuses anything else."""
        wall_ms = read_clock(record.value)
        if wall_ms is None:
            return [Refusal(NO_CLOCK_RECORD)] if self.state.shard == 0 else []
        self._note_forgotten(self._lives.forget(record.partition_name, min(record.clock_ms, wall_ms)))
        return []

    def _refuse_size(self, record: Record, instance: str) -> Refusal:
        size, limit = len(record.value or b""), self.settings.max_record_bytes
        self._lives.events.append(Event("limit", "", instance, "", record.clock_ms, *record.location, RECORD_SIZE))
        return Refusal(f"limit: the record has {size} bytes; the limit is {limit}")

    def _apply_otlp(self, record: Record) -> list[Refusal]:
        """Apply the data of the resources in an OTLP record whose instances are in this shard.

        The shard of its key refuses what is no OTLP. Of the shards that the record has data for, the first one refuses
        what has no valid instance.
        """
        own, shards, refused = self.state.shard, self.state.shards, list[Refusal]()
        value, limit = record.value or b"", self.settings.max_metrics
        first = shard_of(record.key, shards)
        if len(value) > self.settings.max_record_bytes:
            return [self._refuse_size(record, "")] if first == own else []
        try:
            named = [(resource, _instance(resource)) for resource in otlp.read(value)]
        except otlp.OtlpError as error:
            return [Refusal(str(error))] if first == own else []
        places = [None if isinstance(name, Refusal) else shard_of(name.encode(), shards) for _, name in named]
        first = min((shard for shard in places if shard is not None), default=first)
        for (resource, instance), shard in zip(named, places, strict=True):
            if isinstance(instance, Refusal):
                refused += [instance] if first == own else []
                continue
            if shard != own:
                continue
            try:
                found = otlp.snapshots(resource, record.timestamp_ms)
            except otlp.OtlpError as error:
                refused.append(Refusal(str(error)))
                continue
            refused += [Refusal(*rejected) for rejected in found.rejected]
            for snapshot in found.snapshots:
                over_limit, snapshot.metrics = max(0, len(snapshot.metrics) - limit), snapshot.metrics[:limit]
                message = DecodedSnapshot(snapshot, (), over_limit)
                refused += self._applier.apply_snapshot(instance, message, record)
            for snapshot in found.baselines:
                self._applier.apply_baseline(instance, snapshot)
        return refused

    def _apply_message(self, instance: str, message: Message, record: Record) -> list[Refusal]:
        if isinstance(message, Refusal):
            return [message]
        if isinstance(message, DecodedSnapshot):
            return self._applier.apply_snapshot(instance, message, record)
        if isinstance(message, ShortForm):
            return self._applier.apply_short_form(instance, message, record)
        return self._apply_forget(instance, message, record)

    def _apply_forget(self, instance: str, forget: Forget, record: Record) -> list[Refusal]:
        """Apply a forget record, and return the refusals."""
        if forget.metric is None:
            self._applier.apply_tombstone(instance, record, forget)
            return []
        state = self.state
        if forget.shards != state.shards:
            return [Refusal(f"forget: the record is for {forget.shards} shards and the table has {state.shards}")]
        self._note_forgotten(forget_metric(self._lives, forget, record))
        return []

    def _note_forgotten(self, numbers: set[int]) -> None:
        self._changed_forgotten |= numbers
        self._to_publish |= numbers

    def _add_dead_letters(self, record: Record, refused: Sequence[Refusal]) -> None:
        quotable_bytes = MAX_QUOTED_BYTES
        for reason, metric in refused:
            letter = DeadLetter.quoting(record, reason, metric, quotable_bytes)
            quotable_bytes -= len(letter.record.value or b"") + len(letter.metric or "")
            self._dead.append(letter)


def _instance(resource: otlp.ResourceData) -> str | Refusal:
    """Return the instance of an OTLP resource, or why it has none."""
    try:
        return otlp.instance(resource)
    except otlp.OtlpError as error:
        return Refusal(str(error))
