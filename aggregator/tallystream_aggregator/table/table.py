"""The table: records in offset order go in, and what changed comes out at the end of a batch.

Every verdict about counts depends on one instance's records in offset order alone, never on where a batch ends: the
same records cut into other batches give the same table, dead letters and events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from tallystream.record import ShortForm
from tallystream_aggregator.table.apply import Rows
from tallystream_aggregator.table.arithmetic.metric_types import saturated
from tallystream_aggregator.table.compaction import ExpansionNeededError
from tallystream_aggregator.table.decode import Forget, Good, Record, Unreadable, read_key, read_value
from tallystream_aggregator.table.disk import Disk, MemoryChunks
from tallystream_aggregator.table.forget import advance, everything, forget_metric, leave
from tallystream_aggregator.table.limits import RECORD_SIZE, TableSettings, letters
from tallystream_aggregator.table.lives import Lives
from tallystream_aggregator.table.outputs import MAX_QUOTED_BYTES_OF_A_BATCH, DeadLetter, Event, Offsets, Total
from tallystream_aggregator.table.restore.republish import metric_of, republish
from tallystream_aggregator.table.rows import base_row, shard_row
from tallystream_aggregator.table.shards import ShardSum, shard_sum

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from tallystream_aggregator.table.disk import Chunks
    from tallystream_aggregator.table.rows import Published
    from tallystream_aggregator.table.state import State


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


__all__ = ["Changes", "Table", "TableSettings"]


class Changes(NamedTuple):
    """What a batch changed: `totals` of every metric touched, sorted; letters and events in the order of the records.

    `rows` are the records of `metrics-table`, one at most of each key. A table with several shards has no totals:
    `said` is what this shard says of the metrics touched.
    """

    totals: list[Total]
    dead: list[DeadLetter]
    events: list[Event]
    rows: list[Published] = []  # noqa: RUF012 (a tuple's default is never changed)
    said: list[ShardSum] = []  # noqa: RUF012


class Table:
    """The changelog table over `state`, which it changes in place; lives on disk are in `chunks`. For one thread."""

    def __init__(self, state: State, settings: TableSettings | None = None, chunks: Chunks | None = None) -> None:
        self.state = state
        self.disk = Disk(state, MemoryChunks() if chunks is None else chunks)
        self._settings = settings or TableSettings()
        self._dead: list[DeadLetter] = []
        self._quotable = MAX_QUOTED_BYTES_OF_A_BATCH
        self._lives = Lives(state, self._settings, self.disk)
        self._rows = Rows(self._lives, self._settings)
        self._advanced: list[Published] = []
        self._moved = False
        self._republished: set[bytes] = set()
        self._bases: set[int] = set()
        self._held: set[int] = set()
        self._metrics = len(state.metrics)

    def begin(self) -> None:
        """Begin a batch: what was listed as forgotten in one before, and so has been written, goes a step on."""
        for leaving in self.state.leaving:
            self._bases.update(leaving.life.rows)
        self._advanced += advance(self.state)

    def apply(self, records: Iterable[Record]) -> None:
        """Take records, which must be in offset order within each partition.

        Raises:
            ExpansionNeededError: some supersede others of which the table can't tell that they change nothing. The
                table must not be used any more.
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
            # A rebuilt table does not know when; a time in the future is from before the wall clock was set back.
            seen[partition] = min(now_ms, seen.get(partition, now_ms))

    def notice_silence(self, now_ms: int | None = None, waiting: Collection[str] = ()) -> None:
        """Mark the lives silent whose deadline has passed by their partition's time.

        That is its clock; with `now_ms`, the batch's time, plus the time since its last record, except for the
        partitions `waiting`, which have records that were not read. Touches no count: only gauges, rates and the
        numbers of lives depend on it (rule 5).
        """
        state, census = self.state, self._lives.census
        clocks = {
            one: clock if now_ms is None or one in waiting else clock + max(0, now_ms - state.seen[one])
            for one, clock in state.clocks.items()
        }
        judged, before = state.judged, dict(state.judged)
        judged.update((one, max(time, judged.get(one, 0))) for one, time in clocks.items())
        if any(clocks[partition] >= due for partition, due in census.silent_ms().items()):
            self._silence(clocks, before)

    def note_due(self, now_ms: int, waiting: Collection[str] = ()) -> None:
        """Note when the shard has to look for silent lives next: what it noted before, unless that has passed.

        Or unless that is later than some life's deadline. The exact time takes a look at all lives.
        """
        state, census = self.state, self._lives.census
        census.settle()
        if not census.living:
            state.due_ms = 0
            return

        def stands() -> bool:
            return 0 < state.due_ms <= self._first_deadline_ms() and (bool(waiting) or now_ms < state.due_ms)

        if not stands():
            census.look()
            if not stands():
                state.due_ms = self._first_deadline_ms()

    def _first_deadline_ms(self) -> int:
        """Return the wall clock's time before which no life falls silent; some life is living."""
        state = self.state
        return min(at - state.clocks[one] + state.seen[one] for one, at in self._lives.census.silent_ms().items())

    def _silence(self, clocks: Mapping[str, int], judged: Mapping[str, int]) -> None:
        state = self.state
        for life in self._lives:
            if life.living and clocks[life.partition] >= life.deadline_ms:
                self._lives.mark(life.instance)
                self._lives.partials.set_living(life, living=False)
                self._moved = True  # the shard's record says by which time
                if clocks[life.partition] <= judged.get(life.partition, 0):
                    # It said so before the life was heard, after which the partition's time stepped back.
                    self._lives.publish_all(life)
                # The moment of falling silent, not of noticing it: a batch that runs twice writes the same point.
                state.out_ms = max(state.out_ms, life.deadline_ms)
        self._lives.census.look()

    def republish(self, keys: Iterable[bytes], sums: Iterable[bytes]) -> None:
        """Have the next changes publish these keys of `metrics-table` and of `metrics-agg` from the state.

        A key of `metrics-table` that the state does not have is deleted; one of `metrics-agg` is left alone.
        """
        self._republished.update(keys)
        numbers = (self._lives.known(metric) for key in sums if (metric := metric_of(key)) is not None)
        self._lives.partials.tell(number for number in numbers if number >= 0)
        self._moved = True

    def forget(self, now_ms: int) -> None:
        """Forget lives whose time has come; `now_ms` is the batch's time by the wall clock.

        To be called in batches that read every partition to its end: a record that still waits may be one of theirs.
        """
        self._lives.forget(now_ms)

    def changes(self) -> Changes:
        """Return what changed since the last call, and forget it."""
        self._lives.retire()
        left = leave(self.state)
        if not self.state.published:
            self._lives.partials.tell(range(len(self.state.metrics)))
        touched = sorted(self._lives.partials.settle(), key=self.state.metrics.__getitem__)
        self._held |= self._lives.partials.hold()
        totals, said = ([], self.said(touched)) if self.state.shards > 1 else (self._totals(touched), [])
        changes = Changes(totals, list(self._dead), list(self._lives.events), self._published(left), said)
        self._dead.clear()
        self._quotable = MAX_QUOTED_BYTES_OF_A_BATCH
        self._lives.events.clear()
        self._rows.whole.clear()
        return changes

    def take_difference(self) -> State:
        """Return what of the state has changed since the last call, as a state (see `storage`)."""
        state = self.state
        lives = {instance: state.lives.get(instance, []) for instance in self._lives.dirty}
        base = {number: state.base[number] for number in self._bases}
        held = {number: state.held[number] for number in self._held}
        metrics, self._metrics = state.metrics[self._metrics :], len(state.metrics)
        self._lives.dirty, self._bases, self._held = set(), set(), set()
        disk, chunks = self.disk.take_difference()
        return msgspec.structs.replace(
            state, metrics=metrics, lives=lives, base=base, held=held, disk=disk, chunks=chunks
        )

    def _is_included(self, record: Record, included: Mapping[str, int]) -> bool:
        """Tell whether a rebuilt table has a record already; which of those that it supersedes, can't be told."""
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
        """Apply one record and return the reasons for what was refused, each with the metric it is about."""
        instance = read_key(record.key)
        if isinstance(instance, Unreadable):
            return [(instance.reason, None)]
        if record.value is None:
            self._rows.tombstone(instance, record, clock)
            return []
        size, most = len(record.value), self._settings.max_record_bytes
        if size > most:
            place = (record.topic, record.partition, record.offset)
            self._lives.events.append(Event("limit", "", instance, "", clock, place, RECORD_SIZE))
            return [(f"limit: the record has {size} bytes, {most} at most are taken", None)]
        message = read_value(record.value, self._settings.max_metrics)
        return (
            [(message.reason, None)]
            if isinstance(message, Unreadable)
            else self._apply(instance, message, record, clock)
        )

    def _apply(
        self, instance: str, message: Good | ShortForm | Forget, record: Record, clock: int
    ) -> list[tuple[str, str | None]]:
        if isinstance(message, Good):
            return self._rows.snapshot(instance, message, record, clock)
        if isinstance(message, ShortForm):
            return self._rows.short_form(instance, message, record, clock)
        return self._forget(instance, message, record, clock)

    def _forget(self, instance: str, forget: Forget, record: Record, clock: int) -> list[tuple[str, str | None]]:
        """Apply a forget record; return why it is refused."""
        if forget.metric is None:
            self._rows.tombstone(instance, record, clock, forget)
            return []
        state = self.state
        if forget.shards != state.shards:
            return [(f"forget: the record is for {forget.shards} shards and the table has {state.shards}", None)]
        emptied = forget_metric(self._lives, forget, record, clock)
        self._bases |= emptied
        self._advanced += [base_row(state.shard, state.metrics[n], state.base[n]) for n in sorted(emptied)]
        return []

    def _refuse(self, record: Record, refused: Sequence[tuple[str, str | None]]) -> None:
        for reason, metric in refused:
            letter = DeadLetter.quoting(record, reason, metric, self._quotable)
            self._quotable -= len(letter.record.value or b"") + len(letter.metric or "")
            self._dead.append(letter)

    def _published(self, left: list[Published]) -> list[Published]:
        again = republish(self._lives, self._republished)
        self._republished.clear()
        rows = {row.key: row for row in (*again, *self._advanced)}
        rows |= self._lives.take_published()
        if not self.state.published:
            left = everything(self.state)
            self.state.published = True
        rows |= {row.key: row for row in left}
        if not rows and not self._moved:
            return []
        self._advanced, self._moved = [], False
        # Last: what it says is included has been written before it.
        self._lives.census.settle()
        return [*rows.values(), shard_row(self.state, self._lives.census.counted, len(self.disk))]

    def said(self, numbers: Iterable[int]) -> list[ShardSum]:
        """Return what this shard has of these metrics, for those who combine it with the others'."""
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
