"""The rows of lives, and what each change of them changes beside: sums, sizes, the records of metrics-table."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tallystream_aggregator.table.arithmetic.values import is_above
from tallystream_aggregator.table.holders import Holders
from tallystream_aggregator.table.layouts import MIN_METRICS, Layouts, text_bytes
from tallystream_aggregator.table.limits import (
    COUNTER,
    OTHER_ROW_BYTES,
    PART_BYTES,
    ROW_BYTES,
    TableSize,
    life_limit,
    refuse_over_limit,
    size_of_life,
    size_of_metric,
    size_of_row,
)
from tallystream_aggregator.table.lives import SHORT_FORM_LIFE, Lives
from tallystream_aggregator.table.metric_sums import MetricSums
from tallystream_aggregator.table.metrics import TableMetrics
from tallystream_aggregator.table.records.outputs import Event
from tallystream_aggregator.table.rows import RowRecords
from tallystream_aggregator.table.state import Block

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.counters import SnapshotMetrics
    from tallystream_aggregator.sums import MetricId
    from tallystream_aggregator.table.arithmetic.values import Values
    from tallystream_aggregator.table.limits import TableSettings
    from tallystream_aggregator.table.records.decode import Record
    from tallystream_aggregator.table.records.refusals import Refusal
    from tallystream_aggregator.table.state import Life, Row, State


class LifeRows:
    """The rows of the lives of `state`, which it changes in place, and the events since they were last taken.

    `changed_forgotten` are the metrics whose forgotten sums have changed since the state was last stored.
    """

    def __init__(self, state: State, settings: TableSettings) -> None:
        self.state = state
        self.settings = settings
        self.size = TableSize(settings)
        self.metrics = TableMetrics(state.metrics, self.size)
        self.lives = Lives(state, settings.forget_after_ms)
        self.layouts = Layouts(state.metrics)
        self.holders = Holders(self.lives, self.layouts)
        self.sums = MetricSums(state, self.layouts, self.lives, self.holders)
        self.records = RowRecords(state, self.layouts)
        self.events: list[Event] = []
        self._restarted: tuple[tuple[str, int, int], set[tuple[str, str]]] = (("", 0, 0), set())
        self.changed_forgotten: set[int] = set()
        self._baselines = Counter(number for life in self.lives for number in life.baselines)
        for life in self.lives:
            self.size.add(life.app, self._size_of(life))
        self.release(state.metrics)

    def change_settings(self, settings: TableSettings) -> None:
        """Apply the next records with these settings."""
        self.settings = self.size.settings = settings
        self.lives.forget_after(settings.forget_after_ms)

    def add_life(self, life: Life, record: Record, seq: int = 0) -> Life | Refusal:
        """Add a new life with its first part, whose snapshot has this `seq`, and return it, or why it is refused.

        If its instance restarted, that is a `restart` event: one for a record, however many lives begin with it.
        """
        size = size_of_life(life.instance, life.app, int(life.life != SHORT_FORM_LIFE))
        limit = self.size.take(life.app, size)
        if limit is not None:
            return self.refuse(life, limit, "a new life", record)
        if self.lives.is_restart(life, seq):
            self._note_restart(life, record)
        self.lives.add(life)
        return life

    def _note_restart(self, life: Life, record: Record) -> None:
        if self._restarted[0] != record.location:
            self._restarted = record.location, set()
        restarted, instance = self._restarted[1], (life.app, life.instance)
        if instance not in restarted:
            restarted.add(instance)
            self.add_event("restart", life, record)

    def add_part(self, life: Life) -> str | None:
        """Count another part of a life and return None, or return the limit that it exceeds."""
        return self.size.take(life.app, PART_BYTES)

    def remove_life(self, life: Life) -> None:
        """Remove a life, and delete its records on `metrics-table`."""
        self.records.delete(life)
        self.size.add(life.app, -self._size_of(life))
        self.lives.remove(life)
        self._baselines.subtract(life.baselines.keys())

    def add(self, life: Life, metric: MetricId, number: int, row: Row, in_blocks: int = 0) -> int | str:
        """Add the row of a metric that the life does not have. `number` is that of the metric, -1 if it is new.

        `in_blocks` is the number of metrics in the life's blocks. Return the metric's, or the limit that it exceeds.
        """
        text, size = text_bytes(metric), size_of_row(metric)
        if not self.metrics.is_used(number):
            size += size_of_metric(metric)
        limit = life_limit(len(life.rows) + in_blocks, life.bytes + text, self.settings)
        limit = limit or self.size.take(life.app, size)
        if limit is not None:
            return limit
        if number < 0:  # only now: a refused metric does not count
            number = self.metrics.add(metric)
        self.sums.will_change(life, (number,))
        life.rows[number] = row
        self.lives.rows += 1
        life.bytes += text
        self.holders.add_rows(life, (number,))
        self.metrics.use(number)
        return number

    def add_block(self, life: Life, part: int, metrics: SnapshotMetrics) -> bool:
        """Add the first snapshot of a life as a block, and return True.

        Return False and change nothing if one of the metrics is no counter, new, there twice, or beyond a limit.
        """
        if len(metrics) < MIN_METRICS:
            return False
        numbers = [self.metrics.of((life.app, *one.identity)) for one in metrics]
        has_new = -1 in numbers or not self.metrics.unused.isdisjoint(numbers)
        if has_new or len(numbers) != len(set(numbers)):
            return False
        layout, size = self.layouts.layout_with(numbers), len(numbers) * ROW_BYTES[COUNTER]
        counts = layout.counts(metrics)
        exceeded = life_limit(len(numbers) - 1, layout.text_bytes, self.settings)
        if counts is None or layout.others or exceeded or self.size.take(life.app, size):  # only now: it counts them
            return False
        self.sums.add_block(life, layout, list(counts))
        life.blocks[part] = Block(layout.packed, layout.pack(*counts))
        life.bytes = layout.text_bytes
        self.lives.rows += len(numbers)
        self.holders.add_block(life, layout)
        return True

    def remove(self, life: Life, numbers: Iterable[int]) -> None:
        """Remove the rows of these metrics from a life without blocks."""
        removed = list(numbers)
        self.sums.will_change(life, removed)
        for number in removed:
            self.records.change(life, life.rows.pop(number).part)
            life.bytes -= text_bytes(self.state.metrics[number])
            self.size.add(life.app, -size_of_row(self.state.metrics[number]))
        self.lives.rows -= len(removed)
        self.holders.remove_rows(life, removed)
        self.release(removed)

    def leave_out(self, life: Life, number: int, values: Values) -> None:
        """Leave these values of a metric of a life out of its sum, if no higher count is left out."""
        if not is_above(values, life.baselines.get(number)):
            return
        self.sums.will_change(life, (number,))
        if number not in life.baselines:
            self._baselines[number] += 1
            self.size.add(life.app, size_of_row(self.state.metrics[number]))
        life.baselines[number] = values

    def release(self, numbers: Iterable[int]) -> None:
        """Note which of these metrics no life and no forgotten sum has any more.

        A metric of which a life has a baseline stays: it may return.
        """
        for number in numbers:
            if not (number in self.state.forgotten_sums or self._baselines[number] or self.holders.has(number)):
                self.metrics.release(number)

    def note_forgotten(self, numbers: Iterable[int]) -> None:
        """Note that the forgotten sums of these metrics have changed."""
        for number in numbers:
            self.changed_forgotten.add(number)
            self.records.change_forgotten(number)

    def drop_unused(self) -> None:
        """Drop the metrics that nothing has, after their last sums were taken."""
        for number in self.metrics.unused:
            del self._baselines[number]
            self.sums.drop(number)
        self.metrics.drop_unused()

    def blocks_to_rows(self, life: Life, parts: Iterable[int] | None = None) -> None:
        """Turn the blocks of these parts into rows, or all blocks of the life."""
        for part in life.blocks.keys() & parts if parts is not None else list(life.blocks):
            layout = self.layouts.layout_for(life.blocks[part])
            self.layouts.block_to_rows(life, part)
            self.holders.remove_block(life, layout)
            self.holders.add_rows(life, layout.counted)

    def rows_to_block(self, life: Life, part: int, numbers: Iterable[int]) -> None:
        """Turn the rows of a part's newest snapshot, which has the metrics `numbers`, into a block."""
        self.layouts.rows_to_block(life, part, numbers)
        layout = self.layouts.layout_for(life.blocks[part])
        self.holders.remove_rows(life, layout.counters)
        self.holders.add_block(life, layout)

    def change_columns(self, life: Life, part: int, *, to_rows: bool) -> None:
        """Turn the columns of a block into rows, or if none is unusual, its rows into columns."""
        before = self.layouts.layout_for(life.blocks[part])
        if to_rows:
            self.layouts.columns_to_rows(life, part)
        elif not self.layouts.rows_to_columns(life, part):
            return
        self.holders.remove_block(life, before)
        self.holders.add_block(life, self.layouts.layout_for(life.blocks[part]))
        (self.holders.add_rows if to_rows else self.holders.remove_rows)(life, before.distributions)

    def set_last_seen(self, life: Life, record: Record, every_ms: int) -> None:
        """Set the time and the partition of the last record that was applied."""
        partition = record.partition_name
        has_moved = life.partition != partition
        if has_moved:  # partitions were added
            life.offsets.clear()
            self.records.change_all((life,))  # they have the life's partition
            self.holders.remove_all(life)
        self.lives.set_last_seen(life, partition, record.clock_ms, every_ms)
        if has_moved:
            self.holders.add_all(life)

    def notice_silence(self) -> None:
        """Mark lives as silent whose deadline has passed by the time of their partition (rule 5)."""
        for life in self.lives.pop_silent():
            self.sums.set_living(life, living=False)

    def include(self, life: Life, part: int, record: Record) -> None:
        """Note that a part of a life includes a record now, and publish it with the next rows."""
        if life.partition == record.partition_name:  # offsets of another partition have another order
            life.offsets[part] = record.offset
        self.records.change(life, part)

    def add_event(self, kind: str, life: Life, record: Record, detail: str = "") -> None:
        """Add an event that a record caused."""
        self.events.append(Event(kind, life.app, life.instance, life.life, record.clock_ms, *record.location, detail))

    def refuse(self, life: Life, limit: str, what: str, record: Record) -> Refusal:
        """Return the refusal of `what` of a record, which exceeds a limit. The first one of a life is an event."""
        if limit not in life.limits:
            life.limits.append(limit)
            self.add_event("limit", life, record, limit)
        return refuse_over_limit(limit, what, self.settings)

    def _size_of(self, life: Life) -> int:
        """Return the bytes that a life counts, with its rows and baselines."""
        size = size_of_life(life.instance, life.app, len(life.parts))
        size += sum(size_of_row(self.state.metrics[number]) for number in (*life.rows, *life.baselines))
        for block in life.blocks.values():
            layout = self.layouts.layout_for(block)
            size += len(layout.counters) * ROW_BYTES[COUNTER]
            size += (len(layout.counted) - len(layout.counters)) * OTHER_ROW_BYTES
        return size
