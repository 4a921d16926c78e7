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
from tallystream_aggregator.table.forget import forget_metric
from tallystream_aggregator.table.limits import RECORD_SIZE, TableSettings
from tallystream_aggregator.table.lives import Lives
from tallystream_aggregator.table.records.decode import (
    CLOCK_KEY,
    NO_CLOCK_RECORD,
    DecodedSnapshot,
    Message,
    Record,
    read_clock,
    read_key,
    read_value,
)
from tallystream_aggregator.table.records.outputs import MAX_QUOTED_BYTES, DeadLetter, Event
from tallystream_aggregator.table.records.refusals import RecordRefusals, Refusal
from tallystream_aggregator.table.records.shards import is_otlp, shard_of
from tallystream_aggregator.table.rows import forgotten_row, shard_row
from tallystream_aggregator.table.state import Removed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream_aggregator.sums import MetricId, Sum
    from tallystream_aggregator.table.rows import TableRecord
    from tallystream_aggregator.table.state import Life, LifeName, State


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
        self._to_publish: dict[int, MetricId] = {}  # the same since the rows were returned
        self._next = self._lives.next_number  # the metrics from here on are new since the state was stored
        self._dropped: set[int] = set()

    def apply_record(self, record: Record, records: int = 1, message: Message | None = None) -> int:
        """Apply a record that stands for `records`: those that it supersedes, and itself.

        `record.clock_ms` is the time of its partition, `message` the content of its value if that is known already.

        Return the highest value of the short form up to which later records of its run may be left out if a still
        later one is applied; -1 for none. Each of them would be accepted, and replaced by the next.
        """
        self._applier.run_limit = -1
        refused = RecordRefusals()
        self._apply_record(record, message, refused)
        if self._counts(record):
            self.state.records += records
        if refused:
            letters = refused.letters()
            self._add_dead_letters(record, letters)
            self.state.dead += len(letters)
        return self._applier.run_limit

    @property
    def waiting(self) -> int:
        """How many lives with rows, dead letters and events wait until they are taken."""
        return len(self._lives.rows) + len(self._dead) + len(self._lives.events)

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
        self._dropped |= self._lives.drop_unused()
        return changes

    def rows(self) -> list[TableRecord]:
        """Return the rows that changed since the last call, and clear them."""
        rows = self._lives.rows.pop() | {
            row.key: row for row in (forgotten_row(self.state, *one) for one in sorted(self._to_publish.items()))
        }
        if not rows and not self._shard_row_changed:
            return []
        self._to_publish, self._shard_row_changed = {}, False
        return [*rows.values(), shard_row(self.state, self._lives.instances.counts())]

    def publish_all(self) -> None:
        """Have the next outputs and rows include all sums and all rows, whether they have changed or not."""
        self._lives.sums.force_publish(self.state.metrics)
        self._lives.publish_all()
        self._note_forgotten(set(self.state.forgotten_sums))
        self._shard_row_changed = True

    def shard_sums(self, numbers: Iterable[int]) -> list[ShardSum]:
        """Return the partial sums of this shard for the sums of these metrics, for the combiners."""
        state, sums = self.state, self._lives.sums
        sums.apply_changes()
        found = dict.fromkeys(map(sums.numbers.of, numbers))
        return [ShardSum(state.shard, sums.numbers.identity(one), sums[one], state.out_ms) for one in found]

    def pop_difference(self) -> State:
        """Return what changed in the state since the last call, as a state with only these parts (table.storage)."""
        state = self.state
        lives: dict[str, dict[LifeName, Life]] = {}
        removed = Removed([], [one for one in self._dropped if one < self._next], [])
        for app, instance, name in self._lives.unstored:
            life = self._lives.instances.find(app, instance, name)
            if life is None:
                removed.lives.append((app, instance, name))
            else:
                lives.setdefault(instance, {})[life.name] = life
        forgotten_sums = {}
        for number in self._changed_forgotten:
            if number in state.forgotten_sums:
                forgotten_sums[number] = state.forgotten_sums[number]
            else:
                removed.forgotten_sums.append(number)
        new = range(self._next, self._lives.next_number)
        metrics = {number: state.metrics[number] for number in new if number in state.metrics}
        self._next, self._dropped = self._lives.next_number, set()
        self._lives.unstored, self._changed_forgotten = set(), set()
        return msgspec.structs.replace(
            state, metrics=metrics, lives=lives, removed=removed, forgotten_sums=forgotten_sums
        )

    def _apply_record(self, record: Record, message: Message | None, refused: RecordRefusals) -> None:
        """Apply one record, and add what is refused of it."""
        if record.topic in self.settings.otlp_topics:  # without clock records
            self._note_forgotten(self._lives.forget(record.partition_name, record.clock_ms))
            if is_otlp(record, self.settings.otlp_topics):
                self._apply_otlp(record, refused)
                return
            if shard_of(record.key, self.state.shards) != self.state.shard:
                return
        if self._is_clock(record):
            self._apply_clock(record, refused)
        else:
            self._apply_keyed(record, message, refused)

    def _apply_keyed(self, record: Record, message: Message | None, refused: RecordRefusals) -> None:
        """Apply a record whose key is an instance ID."""
        instance = read_key(record.key)
        if isinstance(instance, Refusal):
            refused.add(instance)
        elif record.value is None:
            self._applier.apply_tombstone(instance, record)
        elif len(record.value) > self.settings.max_record_bytes:
            refused.add(self._refuse_size(record, instance))
        else:
            found = read_value(record.value, self.settings.max_metrics) if message is None else message
            self._apply_message(instance, found, record, refused)

    def _counts(self, record: Record) -> bool:
        """Tell whether this shard counts a record. Clock records and those of OTLP topics are in every shard."""
        if self._is_clock(record):
            return self.state.shard == 0
        is_in_all = record.topic in self.settings.otlp_topics
        return not is_in_all or shard_of(record.key, self.state.shards) == self.state.shard

    def _is_clock(self, record: Record) -> bool:
        return record.key == CLOCK_KEY and record.topic not in self.settings.otlp_topics

    def _apply_clock(self, record: Record, refused: RecordRefusals) -> None:
        """Forget lives by a clock record, which every shard has. One of the shards refuses anything else."""
        wall_ms = read_clock(record.value)
        if wall_ms is not None:
            self._note_forgotten(self._lives.forget(record.partition_name, min(record.clock_ms, wall_ms)))
        elif self.state.shard == 0:
            refused.add(Refusal(NO_CLOCK_RECORD))

    def _refuse_size(self, record: Record, instance: str) -> Refusal:
        size, limit = len(record.value or b""), self.settings.max_record_bytes
        self._lives.events.append(Event("limit", "", instance, "", record.clock_ms, *record.location, RECORD_SIZE))
        return Refusal(f"limit: the record has {size} bytes; the limit is {limit}")

    def _apply_otlp(self, record: Record, refused: RecordRefusals) -> None:
        """Apply the data of the resources in an OTLP record whose instances are in this shard.

        The shard of its key refuses what is no OTLP. Of the shards that the record has data for, the first one refuses
        what has no valid instance.
        """
        own, shards = self.state.shard, self.state.shards
        value = record.value or b""
        first = shard_of(record.key, shards)
        if len(value) > self.settings.max_record_bytes:
            if first == own:
                refused.add(self._refuse_size(record, ""))
            return
        try:
            found = otlp.read(value)
        except otlp.OtlpError as error:
            if first == own:
                refused.add(Refusal(str(error)))
            return
        names = [data.resource.instance for data in found]
        places = [None if isinstance(name, otlp.OtlpError) else shard_of(name.encode(), shards) for name in names]
        first = min((shard for shard in places if shard is not None), default=first)
        for data, instance, shard in zip(found, names, places, strict=True):
            if isinstance(instance, otlp.OtlpError):
                if first == own:
                    refused.add(Refusal(str(instance)))
            elif shard == own:
                self._apply_resource(data, instance, record, refused)

    def _apply_resource(self, data: otlp.ResourceData, instance: str, record: Record, refused: RecordRefusals) -> None:
        """Apply the data of one resource of an OTLP record."""
        try:
            found = otlp.snapshots(data, record.timestamp_ms, refused.room)
        except otlp.OtlpError as error:
            refused.add(Refusal(str(error)))
            return
        refused.add_decoded([Refusal(*rejected) for rejected in found.rejected], found.more_rejected)
        limit = self.settings.max_metrics
        for snapshot in found.snapshots:
            over_limit, snapshot.metrics = max(0, len(snapshot.metrics) - limit), snapshot.metrics[:limit]
            message = DecodedSnapshot(snapshot, (), over_limit)
            self._applier.apply_snapshot(instance, message, record, refused)
        for snapshot in found.baselines:
            self._applier.apply_baseline(instance, snapshot)

    def _apply_message(self, instance: str, message: Message, record: Record, refused: RecordRefusals) -> None:
        if isinstance(message, Refusal):
            refused.add(message)
        elif isinstance(message, DecodedSnapshot):
            self._applier.apply_snapshot(instance, message, record, refused)
        elif isinstance(message, ShortForm):
            self._applier.apply_short_form(instance, message, record, refused)
        elif message.metric is None:
            self._applier.apply_tombstone(instance, record, message)
        elif message.shards != self.state.shards:
            reason = f"forget: the record is for {message.shards} shards and the table has {self.state.shards}"
            refused.add(Refusal(reason))
        else:
            self._note_forgotten(forget_metric(self._lives, message, record))

    def _note_forgotten(self, numbers: set[int]) -> None:
        self._changed_forgotten |= numbers
        self._to_publish |= {number: self.state.metrics[number] for number in numbers}

    def _add_dead_letters(self, record: Record, refused: Sequence[Refusal]) -> None:
        quotable_bytes = MAX_QUOTED_BYTES
        for reason, metric in refused:
            letter = DeadLetter.quoting(record, reason, metric, quotable_bytes)
            quotable_bytes -= len(letter.record.value or b"") + len(letter.metric or "")
            self._dead.append(letter)
