"""The table of one shard: it takes records in offset order and returns the changes of a batch.

Every decision about counts depends only on the records of one instance in offset order, not on where a batch ends: the
same records in other batches give the same table, dead letters and events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tallystream.record import ShortForm
from tallystream_aggregator.otlp import decode as otlp
from tallystream_aggregator.table.apply import Refused, Rows
from tallystream_aggregator.table.arithmetic.metric_types import saturated
from tallystream_aggregator.table.compaction import ExpansionNeededError
from tallystream_aggregator.table.decode import Forget, Good, Record, Unreadable, read_key, read_value
from tallystream_aggregator.table.disk import Disk, MemoryChunks
from tallystream_aggregator.table.forget import advance, close_list, everything, forget_metric
from tallystream_aggregator.table.limits import RECORD_SIZE, TableSettings, letters
from tallystream_aggregator.table.lives import Lives
from tallystream_aggregator.table.outputs import MAX_QUOTED_BYTES_OF_A_BATCH, DeadLetter, Event, Offsets, Total
from tallystream_aggregator.table.restore.republish import metric_of, republish
from tallystream_aggregator.table.rows import forgotten_row, shard_row
from tallystream_aggregator.table.shards import ShardSum, is_otlp, shard_of, shard_sum, shards_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from tallystream_aggregator.table.disk import Chunks
    from tallystream_aggregator.table.rows import TableRecord
    from tallystream_aggregator.table.state import State


class Republish(NamedTuple):
    """Keys of `metrics-table` and `metrics-agg` whose records are published again."""

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
    """Apply records in (partition, offset) order, find silent lives and lives to be forgotten, and return the changes.

    `now_ms` is the time of the batch by the wall clock, epoch ms. `waiting` are the partitions, as in "metrics:0", that
    may have unread records: their lives fall silent only by the partition's clock, and no life is forgotten. Both must
    be the same when the batch runs again. `load` returns a record with its value. `republish` names keys that are
    published from the state, whether they change or not.
    """
    if republish is not None:
        table.republish(republish.keys, republish.sums)
    table.begin()
    in_order = sorted(records, key=lambda record: (record.topic, record.partition, record.offset))
    table.apply(map(load, in_order))
    table.seen(records, now_ms)
    table.notice_silence(now_ms, waiting)
    table.set_due(now_ms, waiting)
    if not waiting:
        table.forget(now_ms)
    return table.changes()


__all__ = ["Changes", "Table", "TableSettings"]


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
    """The table over `state`, which it changes in place. Lives on disk are in `chunks`. Not thread-safe."""

    def __init__(self, state: State, settings: TableSettings | None = None, chunks: Chunks | None = None) -> None:
        self.state = state
        self.disk = Disk(state, MemoryChunks() if chunks is None else chunks)
        self._settings = settings or TableSettings()
        self._dead: list[DeadLetter] = []
        self._quotable = MAX_QUOTED_BYTES_OF_A_BATCH
        self._lives = Lives(state, self._settings, self.disk)
        self._rows = Rows(self._lives, self._settings)
        self._advanced: list[TableRecord] = []
        self._moved = False
        self._republished: set[bytes] = set()
        self._changed_forgotten: set[int] = set()
        self._held: set[int] = set()
        self._metrics = len(state.metrics)

    def begin(self) -> None:
        """Begin a batch: lives on a list of an earlier batch, which is written, advance by one step."""
        for retiring in self.state.retiring:
            self._changed_forgotten.update(retiring.life.rows)
        self._advanced += advance(self.state)

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
            clock = self._tick(record)
            refused = letters(self._take(record, clock))
            self.state.records += record.represents
            if refused:
                self._refuse(record, refused)
                self.state.dead += len(refused)
        if self._rows.unexpanded:
            raise ExpansionNeededError(self._rows.unexpanded)

    def seen(self, records: Iterable[Record], now_ms: int) -> None:
        """Note that the partitions of a batch's records were read at `now_ms`, the batch's time by the wall clock."""
        seen = self.state.seen
        seen.update(dict.fromkeys({record.clock_name for record in records}, now_ms))
        for partition in self.state.clocks:
            # A rebuilt table has no time; a time in the future is from before the wall clock was set back.
            seen[partition] = min(now_ms, seen.get(partition, now_ms))

    def notice_silence(self, now_ms: int | None = None, waiting: Collection[str] = ()) -> None:
        """Mark lives as silent whose deadline has passed by the time of their partition.

        That time is the partition's clock. With `now_ms`, the time of the batch, the time since the partition's last
        record is added, except for the partitions `waiting`, which have unread records. No count depends on it, only
        gauges, rates and the numbers of lives (rule 5).
        """
        state, life_counts = self.state, self._lives.life_counts
        clocks = {
            one: clock if now_ms is None or one in waiting else clock + max(0, now_ms - state.seen[one])
            for one, clock in state.clocks.items()
        }
        judged, before = state.judged, dict(state.judged)
        judged.update((one, max(time, judged.get(one, 0))) for one, time in clocks.items())
        if any(clocks[partition] >= due for partition, due in life_counts.silent_ms().items()):
            self._silence(clocks, before)

    def set_due(self, now_ms: int, waiting: Collection[str] = ()) -> None:
        """Set the time at which the shard has to look for silent lives next.

        It keeps the time that it has, unless that has passed or a life's deadline is earlier: the exact time takes a
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
        return min(at - state.clocks[one] + state.seen[one] for one, at in self._lives.life_counts.silent_ms().items())

    def _silence(self, clocks: Mapping[str, int], judged: Mapping[str, int]) -> None:
        state = self.state
        for life in self._lives:
            if life.living and clocks[life.partition] >= life.deadline_ms:
                self._lives.mark(life.instance)
                self._lives.partials.set_living(life, living=False)
                self._moved = True  # the shard's record has the time
                if clocks[life.partition] <= judged.get(life.partition, 0):
                    # The record had that time before the life's last record: the partition's time stepped back since.
                    self._lives.publish_all(life)
                # The moment of falling silent, not of noticing it: a batch that runs twice writes the same point.
                state.out_ms = max(state.out_ms, life.deadline_ms)
        self._lives.life_counts.rescan()

    def republish(self, keys: Iterable[bytes], sums: Iterable[bytes]) -> None:
        """Publish these keys of `metrics-table` and `metrics-agg` from the state with the next changes.

        A key of `metrics-table` that the state does not have is deleted. Such a key of `metrics-agg` is ignored.
        """
        self._republished.update(keys)
        numbers = (self._lives.known(metric) for key in sums if (metric := metric_of(key)) is not None)
        self._lives.partials.force_publish(number for number in numbers if number >= 0)
        self._moved = True

    def forget(self, now_ms: int) -> None:
        """Forget lives that are due. `now_ms` is the time of the batch by the wall clock.

        Call it only in batches that read every partition to its end: an unread record may be one of these lives.
        """
        self._lives.forget(now_ms)

    def changes(self) -> Changes:
        """Return the changes since the last call, and clear them."""
        self._lives.retire()
        left = close_list(self.state)
        if not self.state.published:
            self._lives.partials.force_publish(range(len(self.state.metrics)))
        touched = sorted(self._lives.partials.flush(), key=self.state.metrics.__getitem__)
        self._held |= self._lives.partials.hold()
        totals, shard_sums = ([], self.shard_sums(touched)) if self.state.shards > 1 else (self._totals(touched), [])
        changes = Changes(totals, list(self._dead), list(self._lives.events), self._published(left), shard_sums)
        self._dead.clear()
        self._quotable = MAX_QUOTED_BYTES_OF_A_BATCH
        self._lives.events.clear()
        self._rows.accepted.clear()
        return changes

    def pop_difference(self) -> State:
        """Return the parts of the state that changed since the last call, as a state (table.storage)."""
        state = self.state
        lives = {instance: state.lives.get(instance, []) for instance in self._lives.dirty}
        forgotten_sums = {number: state.forgotten_sums[number] for number in self._changed_forgotten}
        held = {number: state.held[number] for number in self._held}
        metrics, self._metrics = state.metrics[self._metrics :], len(state.metrics)
        self._lives.dirty, self._changed_forgotten, self._held = set(), set(), set()
        disk, chunks = self.disk.pop_difference()
        return msgspec.structs.replace(
            state, metrics=metrics, lives=lives, forgotten_sums=forgotten_sums, held=held, disk=disk, chunks=chunks
        )

    def _is_included(self, record: Record, included: Mapping[str, int]) -> bool:
        """Tell whether a rebuilt table includes a record already.

        It can't tell which superseded records it includes.
        """
        if record.offset <= included.get(record.clock_name, -1):
            return True
        if record.superseded is not None and record.superseded.first <= included.get(record.clock_name, -1):
            self._rows.unexpanded.add((record.key or b"").decode())
        return False

    def _tick(self, record: Record) -> int:
        state, partition = self.state, record.clock_name
        clock = max(state.clocks.get(partition, 0), record.timestamp_ms, record.clock_ms)
        state.clocks[partition] = clock
        state.offsets[partition] = record.offset
        self._moved = True
        state.out_ms = max(state.out_ms, clock)
        return clock

    def _take(self, record: Record, clock: int) -> list[tuple[str, str | None]]:
        """Apply one record. Return the reason for each refusal, with the metric as JSON, None for the whole record."""
        if is_otlp(record, self._settings.otlp_topics):
            return self._take_otlp(record, clock)
        instance = read_key(record.key)
        if isinstance(instance, Unreadable):
            return [(instance.reason, None)]
        if record.value is None:
            self._rows.tombstone(instance, record, clock)
            return []
        if len(record.value) > self._settings.max_record_bytes:
            return self._too_large(record, instance, clock)
        message = read_value(record.value, self._settings.max_metrics)
        return (
            [(message.reason, None)]
            if isinstance(message, Unreadable)
            else self._apply(instance, message, record, clock)
        )

    def _too_large(self, record: Record, instance: str, clock: int) -> Refused:
        size, most = len(record.value or b""), self._settings.max_record_bytes
        place = (record.topic, record.partition, record.offset)
        self._lives.events.append(Event("limit", "", instance, "", clock, place, RECORD_SIZE))
        return [(f"limit: the record has {size} bytes, {most} at most are taken", None)]

    def _take_otlp(self, record: Record, clock: int) -> Refused:
        """Apply the data of the resources in an OTLP record whose instances are in this shard.

        Of the shards that read the record, the first one refuses what has no instance.
        """
        state, refused = self.state, list[tuple[str, str | None]]()
        is_first = state.shard == min(shards_of(record, state.shards, self._settings.otlp_topics))
        if len(record.value or b"") > self._settings.max_record_bytes:
            return self._too_large(record, "", clock) if is_first else []
        try:
            resources = otlp.read(record.value or b"")
        except otlp.OtlpError as error:
            return [(str(error), None)]
        applied = set[tuple[str, str, str]]()
        for resource in resources:
            try:
                instance = otlp.instance(resource)
            except otlp.OtlpError as error:
                refused += [(str(error), None)] if is_first else []
                continue
            if shard_of(instance.encode(), state.shards) != state.shard:
                continue
            try:
                found = otlp.snapshots(resource, record.timestamp_ms)
            except otlp.OtlpError as error:
                refused.append((str(error), None))
                continue
            refused += found.rejected
            for snapshot in found.snapshots:
                most = self._settings.max_metrics
                beyond, snapshot.metrics = max(0, len(snapshot.metrics) - most), snapshot.metrics[:most]
                refused += self._rows.snapshot(instance, Good(snapshot, (), beyond), record, clock, applied)
        return refused

    def _apply(
        self, instance: str, message: Good | ShortForm | Forget, record: Record, clock: int
    ) -> list[tuple[str, str | None]]:
        if isinstance(message, Good):
            return self._rows.snapshot(instance, message, record, clock)
        if isinstance(message, ShortForm):
            return self._rows.short_form(instance, message, record, clock)
        return self._forget(instance, message, record, clock)

    def _forget(self, instance: str, forget: Forget, record: Record, clock: int) -> list[tuple[str, str | None]]:
        """Apply a forget record. Return why it is refused, if it is."""
        if forget.metric is None:
            self._rows.tombstone(instance, record, clock, forget)
            return []
        state = self.state
        if forget.shards != state.shards:
            return [(f"forget: the record is for {forget.shards} shards and the table has {state.shards}", None)]
        emptied = forget_metric(self._lives, forget, record, clock)
        self._changed_forgotten |= emptied
        self._advanced += [
            forgotten_row(state.shard, state.metrics[n], state.forgotten_sums[n]) for n in sorted(emptied)
        ]
        return []

    def _refuse(self, record: Record, refused: Sequence[tuple[str, str | None]]) -> None:
        for reason, metric in refused:
            letter = DeadLetter.quoting(record, reason, metric, self._quotable)
            self._quotable -= len(letter.record.value or b"") + len(letter.metric or "")
            self._dead.append(letter)

    def _published(self, left: list[TableRecord]) -> list[TableRecord]:
        again = republish(self._lives, self._republished)
        self._republished.clear()
        rows = {row.key: row for row in (*again, *self._advanced)}
        rows |= self._lives.pop_rows()
        if not self.state.published:
            left = everything(self.state)
            self.state.published = True
        rows |= {row.key: row for row in left}
        if not rows and not self._moved:
            return []
        self._advanced, self._moved = [], False
        # The shard's record comes last: when it is written, all that it includes is written.
        self._lives.life_counts.flush()
        return [*rows.values(), shard_row(self.state, self._lives.life_counts.counted, len(self.disk))]

    def shard_sums(self, numbers: Iterable[int]) -> list[ShardSum]:
        """Return the partial sums of this shard for these metrics, for the combiners."""
        state, offsets = self.state, self._offsets()
        return [
            shard_sum(
                state.shard,
                state.metrics[number],
                self._lives.partials[number],
                state.out_ms,
                offsets,
            )
            for number in numbers
        ]

    def _offsets(self) -> Offsets:
        offsets: Offsets = {}
        for partition, offset in self.state.offsets.items():
            topic, _, index = partition.rpartition(":")
            offsets.setdefault(topic, {})[index] = offset
        return offsets

    def _totals(self, touched: Iterable[int]) -> list[Total]:
        totals = []
        offsets = self._offsets()
        for number in touched:
            metric, partial = self.state.metrics[number], self._lives.partials[number]
            summed, overflow = saturated(partial.totals())
            summed |= partial.quantiles()
            counts = (partial.lives, partial.instances, self.state.out_ms, offsets, partial.forgotten)
            totals.append(Total(metric, summed, *counts, overflow))
            if overflow and number not in self.state.overflowed:
                self.state.overflowed.append(number)
                self._lives.events.append(Event("overflow", metric[0], "", "", self.state.out_ms, detail=metric[1]))
            elif not overflow and number in self.state.overflowed:
                self.state.overflowed.remove(number)
        return totals
