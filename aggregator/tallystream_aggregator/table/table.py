"""The table of one shard: `run_batch` applies the records of a batch and returns what changed.

Every decision about counts depends only on the records of one instance in offset order. So the same records in other
batches give the same table, dead letters and events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tallystream.record import ShortForm
from tallystream_aggregator.otlp import decode as otlp
from tallystream_aggregator.table.apply import RecordApplier
from tallystream_aggregator.table.compaction import ExpansionNeededError, expand
from tallystream_aggregator.table.decode import (
    DecodedSnapshot,
    Forget,
    Record,
    Refusal,
    read_key,
    read_value,
)
from tallystream_aggregator.table.forget import advance_forgetting, close_list, forget_metric, forgotten_rows
from tallystream_aggregator.table.limits import RECORD_SIZE, TableSettings, limit_letters
from tallystream_aggregator.table.lives import Lives
from tallystream_aggregator.table.outputs import MAX_QUOTED_BYTES_OF_A_BATCH, DeadLetter, Event, Total
from tallystream_aggregator.table.restore.republish import Republish, metric_of, republish
from tallystream_aggregator.table.rows import forgotten_row, shard_row
from tallystream_aggregator.table.shards import ShardSum, is_otlp, shard_of, shards_of
from tallystream_aggregator.table.sums.numbers import sum_of
from tallystream_aggregator.table.sums.outputs import SumOutputs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from tallystream_aggregator.table.compaction import Span
    from tallystream_aggregator.table.rows import TableRecord
    from tallystream_aggregator.table.state import State


def run_expanded(
    records: Sequence[Record], run: Callable[[Sequence[Record]], Changes], read: Callable[[Span], Iterable[Record]]
) -> Changes:
    """Run a batch from the stored table, again with dropped records (`expand`) while it raises ExpansionNeededError."""
    instances: set[str] = set()
    while True:
        try:
            return run(expand(records, instances, read) if instances else records)
        except ExpansionNeededError as needed:
            instances |= needed.instances


def run_batch(
    table: Table,
    records: Sequence[Record],
    *,
    now_ms: int,
    waiting: Collection[str] = (),
    load: Callable[[Record], Record] = lambda record: record,
    republish: Republish | None = None,
) -> Changes:
    """Apply records in (partition, offset) order, find silent lives and lives to be forgotten, and return the changes.

    `now_ms` is the time of the batch by the wall clock, epoch ms. `waiting` are the partitions, as in "metrics:0", that
    may have unread records: their lives fall silent only by the partition's clock, and no life is forgotten. Both must
    be the same when the batch runs again. `load` returns a record with its value. `republish` names keys that are
    published from the state, whether they change or not. Such a batch takes no step of forgetting: the row of a life
    that it adds to the forgotten sums could not be published again.
    """
    if republish is None:
        table.begin_batch()
    else:
        table.republish(republish.keys, republish.sums)
    in_order = sorted(records, key=lambda record: (record.topic, record.partition, record.offset))
    table.apply(map(load, in_order))
    table.record_read_times(records, now_ms)
    table.notice_silence(now_ms, waiting)
    table.set_due(now_ms, waiting)
    if not waiting:
        table.forget_lives(now_ms)
    return table.changes()


class Changes(NamedTuple):
    """The changes of a batch: `totals` of the changed metrics, sorted; dead letters and events in record order.

    `rows` are the records of `metrics-table`, at most one for each key. A table of several shards has `shard_sums`, the
    partial sums of this shard, instead of totals.
    """

    totals: list[Total]
    dead: list[DeadLetter]
    events: list[Event]
    rows: list[TableRecord] = []  # noqa: RUF012 (a tuple's default is never changed)
    shard_sums: list[ShardSum] = []  # noqa: RUF012


class Table:
    """The table over `state`, which it changes in place. Not thread-safe."""

    def __init__(self, state: State, settings: TableSettings | None = None) -> None:
        self.state = state
        self._settings = settings or TableSettings()
        self._dead: list[DeadLetter] = []
        self._quotable_bytes = MAX_QUOTED_BYTES_OF_A_BATCH
        self._lives = Lives(state, self._settings)
        self._outputs = SumOutputs(state, self._lives.sums)
        self._applier = RecordApplier(self._lives, self._settings)
        self._forgetting_rows: list[TableRecord] = []
        self._shard_row_changed = False
        self._republished: set[bytes] = set()
        self._changed_forgotten: set[int] = set()
        self._metrics = len(state.metrics)

    def begin_batch(self) -> None:
        """Begin a batch. Lives that are being forgotten advance by one step."""
        for listed in self.state.listed:
            self._changed_forgotten.update(listed.life.rows)
        self._forgetting_rows += advance_forgetting(self.state)

    def apply(self, records: Iterable[Record]) -> None:
        """Apply records, which must be in offset order within each partition.

        Raises:
            ExpansionNeededError: a record supersedes others that may change the table. The table must not be used any
                more.
        """
        included = self.state.included
        for record in records:
            if included and self._is_included(record, included):
                continue
            self._apply(record, self._advance_clock(record), record.record_count)
        if self._applier.unexpanded:
            raise ExpansionNeededError(self._applier.unexpanded)

    def apply_record(self, record: Record, records: int = 1) -> int:
        """Apply a record that stands for `records`: those that it supersedes, and itself. Its time is `clock_ms`.

        Return the highest seq, or value of the short form, up to which later records of its run may be left out if a
        still later one is applied; -1 for none. Each of them would be accepted completely, and replaced by the next.
        """
        self._applier.run_limit = -1
        self._apply(record, record.clock_ms, records)
        return self._applier.run_limit

    def advance(self, partition: str, offset: int, clock_ms: int) -> None:
        """Note that a partition is read up to `offset`, included, and that its time is `clock_ms`."""
        state = self.state
        state.offsets[partition], state.clocks[partition] = offset, clock_ms
        state.out_ms = max(state.out_ms, clock_ms)
        self._shard_row_changed = True

    def _apply(self, record: Record, clock: int, records: int) -> None:
        refused = limit_letters(self._apply_record(record, clock))
        self.state.records += records
        if refused:
            self._add_dead_letters(record, refused)
            self.state.dead += len(refused)

    def record_read_times(self, records: Iterable[Record], now_ms: int) -> None:
        """Set the time at which the partitions of a batch's records were read to `now_ms`, the time of the batch."""
        read_ms = self.state.read_ms
        read_ms.update(dict.fromkeys({record.partition_name for record in records}, now_ms))
        for partition in self.state.clocks:
            # A rebuilt table has no times. A time in the future is from before the wall clock was set back.
            read_ms[partition] = min(now_ms, read_ms.get(partition, now_ms))

    def notice_silence(self, now_ms: int | None = None, waiting: Collection[str] = ()) -> None:
        """Mark lives as silent whose deadline has passed by the time of their partition.

        That time is the partition's clock. With `now_ms`, the time of the batch, the time since the partition's last
        record is added, except for the partitions `waiting`, which have unread records. No count depends on it, only
        gauges, rates and the numbers of lives (rule 5).
        """
        state, life_counts = self.state, self._lives.life_counts
        clocks = {
            one: clock if now_ms is None or one in waiting else clock + max(0, now_ms - state.read_ms[one])
            for one, clock in state.clocks.items()
        }
        judged, before = state.judged, dict(state.judged)
        judged.update((one, max(time, judged.get(one, 0))) for one, time in clocks.items())
        if any(clocks[partition] >= due for partition, due in life_counts.next_silence_ms().items()):
            self._mark_silent(clocks, before)

    def set_due(self, now_ms: int, waiting: Collection[str] = ()) -> None:
        """Set the wall-clock time at which the shard has to check for silent lives next.

        The time stays the same unless it has passed or a life's deadline is earlier, because the exact time requires a
        visit to all lives.
        """
        state, life_counts = self.state, self._lives.life_counts
        life_counts.flush()
        if not life_counts.living:
            state.due_ms = 0
            return

        def is_current() -> bool:
            return 0 < state.due_ms <= self._first_deadline_ms() and (bool(waiting) or now_ms < state.due_ms)

        if not is_current():
            life_counts.rescan()
            if not is_current():
                state.due_ms = self._first_deadline_ms()

    def _first_deadline_ms(self) -> int:
        """Return the wall-clock time before which no life falls silent. At least one life must be living."""
        state = self.state
        next_silence_ms = self._lives.life_counts.next_silence_ms()
        return min(at - state.clocks[one] + state.read_ms[one] for one, at in next_silence_ms.items())

    def _mark_silent(self, clocks: Mapping[str, int], judged: Mapping[str, int]) -> None:
        state = self.state
        for life in self._lives:
            if life.living and clocks[life.partition] >= life.deadline_ms:
                self._lives.mark_dirty(life.instance)
                self._lives.sums.set_living(life, living=False)
                self._shard_row_changed = True  # it has `judged`
                if clocks[life.partition] <= judged.get(life.partition, 0):
                    # `judged` had this time before the life's last record. So the partition's time went back since.
                    self._lives.publish_all(life)
                # The time of falling silent, not of noticing it: a batch that runs again writes the same point.
                state.out_ms = max(state.out_ms, life.deadline_ms)
        self._lives.life_counts.rescan()

    def republish(self, keys: Iterable[bytes], sums: Iterable[bytes]) -> None:
        """Publish these keys of `metrics-table` and `metrics-agg` from the state with the next changes.

        A key of `metrics-table` that the state does not have is deleted. A sum with tags that the sums do not have is
        published as empty. Any other key of `metrics-agg` that the state does not have is ignored.
        """
        self._republished.update(keys)
        tags, numbers = self.state.sum_tags, self._lives.sums.numbers
        for metric in filter(None, map(metric_of, sums)):
            if sum_of(metric, tags) != metric:
                self._outputs.publish_empty([metric] if self.state.shard == 0 else [])
            else:
                number = numbers.find(metric) if numbers.are_shared else self._lives.number_of(metric)
                self._lives.sums.force_publish([number] if number >= 0 else [])
        self._shard_row_changed = True

    def forget_lives(self, now_ms: int) -> None:
        """Forget lives that are due. `now_ms` is the time of the batch by the wall clock.

        Call it only in batches that read every partition to its end: an unread record may belong to one of these lives.
        """
        self._lives.forget(now_ms)

    def changes(self) -> Changes:
        """Return the changes since the last call, and clear them."""
        list_rows = close_list(self.state)
        outputs = self.outputs()
        return outputs._replace(rows=self._table_rows(list_rows))

    def outputs(self) -> Changes:
        """Return the changed sums, the dead letters and the events since the last call, without rows; clear them."""
        if not self.state.published:
            self._lives.sums.force_publish(range(len(self.state.metrics)))
            self._outputs.publish_empty(self.state.emptied)
            self.state.emptied = []
        changed = self._lives.sums.flush()
        totals, shard_sums = list[Total](), list[ShardSum]()
        if self.state.shards > 1:
            shard_sums = self.shard_sums(sorted(changed, key=self._lives.sums.numbers.identity))
        else:
            totals, overflows = self._outputs.totals(changed)
            self._lives.events += overflows
        outputs = Changes(totals, list(self._dead), list(self._lives.events), [], shard_sums)
        self._dead.clear()
        self._quotable_bytes = MAX_QUOTED_BYTES_OF_A_BATCH
        self._lives.events.clear()
        self._applier.accepted.clear()
        return outputs

    def rows(self) -> list[TableRecord]:
        """Return the rows that changed since the last call, or all of them if none was published yet; clear them."""
        return self._table_rows(close_list(self.state))

    def pop_difference(self) -> State:
        """Return what changed in the state since the last call, as a state with only these parts (table.storage)."""
        state = self.state
        lives = {instance: state.lives.get(instance, []) for instance in self._lives.dirty}
        forgotten_sums = {number: state.forgotten_sums[number] for number in self._changed_forgotten}
        metrics, self._metrics = state.metrics[self._metrics :], len(state.metrics)
        self._lives.dirty, self._changed_forgotten = set(), set()
        return msgspec.structs.replace(state, metrics=metrics, lives=lives, forgotten_sums=forgotten_sums)

    def _is_included(self, record: Record, included: Mapping[str, int]) -> bool:
        """Tell whether a rebuilt table includes a record already.

        Which superseded records it includes is unknown, so these are read again.
        """
        if record.offset <= included.get(record.partition_name, -1):
            return True
        if record.superseded is not None and record.superseded.first <= included.get(record.partition_name, -1):
            self._applier.unexpanded.add((record.key or b"").decode())
        return False

    def _advance_clock(self, record: Record) -> int:
        state, partition = self.state, record.partition_name
        clock = max(state.clocks.get(partition, 0), record.timestamp_ms, record.clock_ms)
        state.clocks[partition] = clock
        state.offsets[partition] = record.offset
        self._shard_row_changed = True
        state.out_ms = max(state.out_ms, clock)
        return clock

    def _apply_record(self, record: Record, clock: int) -> list[Refusal]:
        """Apply one record, and return the refusals."""
        if self._settings.otlp_topics and is_otlp(record, self._settings.otlp_topics):
            return self._apply_otlp(record, clock)
        instance = read_key(record.key)
        if isinstance(instance, Refusal):
            return [instance]
        if record.value is None:
            self._applier.apply_tombstone(instance, record, clock)
            return []
        if len(record.value) > self._settings.max_record_bytes:
            return [self._refuse_size(record, instance, clock)]
        return self._apply_message(instance, read_value(record.value, self._settings.max_metrics), record, clock)

    def _refuse_size(self, record: Record, instance: str, clock: int) -> Refusal:
        size, limit = len(record.value or b""), self._settings.max_record_bytes
        self._lives.events.append(Event("limit", "", instance, "", clock, record.location, RECORD_SIZE))
        return Refusal(f"limit: the record has {size} bytes; the limit is {limit}")

    def _apply_otlp(self, record: Record, clock: int) -> list[Refusal]:
        """Apply the data of the resources in an OTLP record whose instances are in this shard.

        Of the shards that read the record, the first one refuses data without a valid instance.
        """
        state, refused, applied = self.state, list[Refusal](), set[tuple[str, str, str]]()
        value, limit = record.value or b"", self._settings.max_metrics
        is_first = state.shard == min(shards_of(record, state.shards, self._settings.otlp_topics))
        if len(value) > self._settings.max_record_bytes:
            return [self._refuse_size(record, "", clock)] if is_first else []
        try:
            resources = otlp.read(value)
        except otlp.OtlpError as error:
            return [Refusal(str(error))]
        for resource in resources:
            try:
                instance = otlp.instance(resource)
            except otlp.OtlpError as error:
                refused += [Refusal(str(error))] if is_first else []
                continue
            if shard_of(instance.encode(), state.shards) != state.shard:
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
                refused += self._applier.apply_snapshot(instance, message, record, clock, applied)
        return refused

    def _apply_message(
        self, instance: str, message: DecodedSnapshot | ShortForm | Forget | Refusal, record: Record, clock: int
    ) -> list[Refusal]:
        if isinstance(message, Refusal):
            return [message]
        if isinstance(message, DecodedSnapshot):
            return self._applier.apply_snapshot(instance, message, record, clock)
        if isinstance(message, ShortForm):
            return self._applier.apply_short_form(instance, message, record, clock)
        return self._apply_forget(instance, message, record, clock)

    def _apply_forget(self, instance: str, forget: Forget, record: Record, clock: int) -> list[Refusal]:
        """Apply a forget record, and return the refusals."""
        if forget.metric is None:
            self._applier.apply_tombstone(instance, record, clock, forget)
            return []
        state = self.state
        if forget.shards != state.shards:
            return [Refusal(f"forget: the record is for {forget.shards} shards and the table has {state.shards}")]
        emptied = forget_metric(self._lives, forget, record, clock)
        self._changed_forgotten |= emptied
        self._forgetting_rows += [
            forgotten_row(state.shard, state.metrics[n], state.forgotten_sums[n]) for n in sorted(emptied)
        ]
        return []

    def _add_dead_letters(self, record: Record, refused: Sequence[Refusal]) -> None:
        for reason, metric in refused:
            letter = DeadLetter.quoting(record, reason, metric, self._quotable_bytes)
            self._quotable_bytes -= len(letter.record.value or b"") + len(letter.metric or "")
            self._dead.append(letter)

    def _table_rows(self, list_rows: list[TableRecord]) -> list[TableRecord]:
        republished = republish(self._lives, self._republished)
        self._republished.clear()
        rows = {row.key: row for row in (*republished, *self._forgetting_rows)}
        rows |= self._lives.pop_rows()
        if not self.state.published:
            list_rows = forgotten_rows(self.state)
            self.state.published = True
        rows |= {row.key: row for row in list_rows}
        if not rows and not self._shard_row_changed:
            return []
        self._forgetting_rows, self._shard_row_changed = [], False
        # The shard's record is last: once it is written, all rows that it includes are written.
        self._lives.life_counts.flush()
        return [*rows.values(), shard_row(self.state, self._lives.life_counts.counts)]

    def shard_sums(self, numbers: Iterable[int]) -> list[ShardSum]:
        """Return the partial sums of this shard for the sums of these metrics, for the combiners."""
        return self._outputs.shard_sums(numbers)
