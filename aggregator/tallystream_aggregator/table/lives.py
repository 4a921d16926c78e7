"""The lives of a shard: what changes in them, their metrics and events, and what they count in the table's size."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tallystream_aggregator.table.deadlines import Deadlines
from tallystream_aggregator.table.holders import Holders
from tallystream_aggregator.table.instances import SHORT_FORM_LIFE, Instances
from tallystream_aggregator.table.layouts import Layouts, metric_count, text_bytes
from tallystream_aggregator.table.limits import (
    COUNTER,
    PART_BYTES,
    ROW_BYTES,
    TableSize,
    life_limit,
    size_of_life,
    size_of_metric,
    size_of_row,
)
from tallystream_aggregator.table.metric_numbers import MetricNumbers
from tallystream_aggregator.table.metric_sums import MetricSums
from tallystream_aggregator.table.records.outputs import Event
from tallystream_aggregator.table.rows import LifeRows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.sums import MetricId
    from tallystream_aggregator.table.arithmetic.metric_types import Values
    from tallystream_aggregator.table.limits import TableSettings
    from tallystream_aggregator.table.records.decode import Record
    from tallystream_aggregator.table.state import Life, LifeId, Row, State


class Lives:
    """The lives and metrics of `state`, which it changes in place, and the events since they were last taken.

    `unstored` are the lives that have changed since the state was last stored, which may be gone. `unused` are the
    metrics that no life and no forgotten sum has. They do not count in the `size`, and are dropped after the next step.
    """

    def __init__(self, state: State, settings: TableSettings) -> None:
        self.state = state
        self.layouts = Layouts(state.metrics)
        self.instances = Instances(state)
        self.holders = Holders(self.instances, self.layouts)
        self.sums = MetricSums(state, self.layouts, self.instances, self.holders)
        self.rows = LifeRows(state.metrics, self.layouts)
        self.events: list[Event] = []
        self.unstored: set[LifeId] = set()
        self.numbers = MetricNumbers(state.metrics)
        self.next_number = max(state.metrics, default=-1) + 1
        self._settings = settings
        self.size = TableSize(settings)
        self.unused: set[int] = set()
        self._baselines = Counter(number for life in self.instances for number in life.baselines)
        for metric in state.metrics.values():
            self.size.add(metric[0], size_of_metric(metric))
        for life in self.instances:
            self.size.add(life.app, self._size_of(life))
        self._silence = Deadlines(lambda life: life.deadline_ms, self.instances)
        self._forgetting = Deadlines(lambda life: life.keep_ms + settings.forget_after_ms, self.instances)
        for life in self.instances:
            self._set_due(life)
        self.release(state.metrics)

    def will_change(self, life: Life) -> None:
        """Note that a life is about to change."""
        self.unstored.add(life.id)
        self.instances.will_change(life)

    def add(self, life: Life, record: Record, seq: int = 0) -> Life:
        """Add a new life, whose first snapshot has this `seq`. If its instance restarted, that is a `restart` event."""
        if self.instances.is_restart(life, seq):
            self.add_event("restart", life, record)
        self.instances.add(life)
        self.size.add(life.app, size_of_life(life.instance, life.app, 0))
        return life

    def add_part(self, life: Life) -> str | None:
        """Count another part of a life and return None, or return the limit that it exceeds."""
        limit = self.size.exceeded_limit(life.app, PART_BYTES)
        if limit is None:
            self.size.add(life.app, PART_BYTES)
        return limit

    def exceeded_limit(self, life: Life, metric: MetricId, number: int) -> str | None:
        """Return the limit that a metric exceeds which a life does not have, or None. `number` is -1 if it is new."""
        is_used = number >= 0 and number not in self.unused
        more = size_of_row(metric) + (0 if is_used else size_of_metric(metric))
        of_life = life_limit(metric_count(life), life.bytes + text_bytes(metric), self._settings)
        return of_life or self.size.exceeded_limit(life.app, more)

    def add_row(self, life: Life, number: int, row: Row) -> None:
        """Add the row of a metric that the life does not have."""
        metric = self.state.metrics[number]
        self.sums.mark_dirty(life, (number,))
        life.rows[number] = row
        self.instances.rows += 1
        life.bytes += text_bytes(metric)
        self.size.add(life.app, size_of_row(metric))
        self.holders.add_rows(life, (number,))
        if number in self.unused:
            self.unused.discard(number)
            self.size.add(life.app, size_of_metric(metric))

    def remove_rows(self, life: Life, numbers: Iterable[int]) -> None:
        """Remove the rows of these metrics from a life without blocks."""
        removed = list(numbers)
        self.sums.mark_dirty(life, removed)
        for number in removed:
            self.rows.change(life, life.rows.pop(number).part)
            life.bytes -= text_bytes(self.state.metrics[number])
            self.size.add(life.app, -size_of_row(self.state.metrics[number]))
        self.instances.rows -= len(removed)
        self.holders.remove_rows(life, removed)
        self.release(removed)

    def release(self, numbers: Iterable[int]) -> None:
        """Note which of these metrics no life and no forgotten sum has any more.

        A metric of which a life has a baseline stays: it may return.
        """
        for number in numbers:
            is_kept = number in self.state.forgotten_sums or self._baselines[number] or self.holders.has(number)
            if not is_kept and number not in self.unused:
                self.unused.add(number)
                metric = self.state.metrics[number]
                self.size.add(metric[0], -size_of_metric(metric))

    def set_baseline(self, life: Life, number: int, values: Values) -> None:
        """Set the values of a metric of a life that its sum leaves out."""
        self.sums.mark_dirty(life, (number,))
        if number not in life.baselines:
            self._baselines[number] += 1
            self.size.add(life.app, size_of_row(self.state.metrics[number]))
        life.baselines[number] = values

    def drop_unused(self) -> set[int]:
        """Drop the metrics that nothing has, after their last sums were taken, and return their numbers."""
        dropped, self.unused = self.unused, set()
        for number in dropped:
            del self._baselines[number]
            self.sums.drop(number)
            self.numbers.remove(self.state.metrics.pop(number))
        return dropped

    def blocks_to_rows(self, life: Life, parts: Iterable[int] | None = None) -> None:
        """Turn the blocks of these parts into rows, or all blocks of the life."""
        for part in life.blocks.keys() & parts if parts is not None else list(life.blocks):
            layout = self.layouts.layout_for(life.blocks[part])
            self.layouts.block_to_rows(life, part)
            self.holders.remove_block(life, layout)
            self.holders.add_rows(life, layout.counters)

    def rows_to_block(self, life: Life, part: int, numbers: Iterable[int]) -> None:
        """Turn the rows of a part's newest snapshot, which has the metrics `numbers`, into a block."""
        self.layouts.rows_to_block(life, part, numbers)
        layout = self.layouts.layout_for(life.blocks[part])
        self.holders.remove_rows(life, layout.counters)
        self.holders.add_block(life, layout)

    def set_last_seen(self, life: Life, record: Record, every_ms: int) -> None:
        """Set the time and the partition of the last record that was applied."""
        partition, deadline_ms = record.partition_name, life.deadline_ms
        is_new_here = life.partition != partition  # it is new, or partitions were added and the instance moved here
        if is_new_here and life.partition:
            life.offsets.clear()
            for part in life.parts:  # the rows of all parts have the life's partition
                self.rows.change(life, part)
            self.holders.remove_all(life)
        life.partition, life.last_seen_ms, life.every_ms = partition, record.clock_ms, every_ms
        if is_new_here:
            self.holders.add_all(life)
            self._set_due(life)
        elif life.deadline_ms < deadline_ms:
            self._silence.add(life)

    def set_living(self, life: Life, *, living: bool) -> None:
        """Mark a life as living or silent."""
        self.sums.set_living(life, living=living)
        if living:
            self._silence.add(life)

    def notice_silence(self) -> None:
        """Mark lives as silent whose deadline has passed by the time of their partition (rule 5)."""
        for partition, clock in self.state.clocks.items():
            for life in self._silence.pop(partition, clock):
                if life.living:
                    self.unstored.add(life.id)
                    self.sums.set_living(life, living=False)

    def _set_due(self, life: Life) -> None:
        if life.living:
            self._silence.add(life)
        if life.life != SHORT_FORM_LIFE:
            self._forgetting.add(life)

    def delete(self, life: Life) -> None:
        """Remove a life, and delete its rows on `metrics-table`."""
        self.unstored.add(life.id)
        self.rows.delete(life)
        self.size.add(life.app, -self._size_of(life))
        self.instances.remove(life)
        self._baselines.subtract(life.baselines.keys())

    def _size_of(self, life: Life) -> int:
        """Return the bytes that a life counts, with its rows and baselines. In blocks it has only counters."""
        rows = [size_of_row(self.state.metrics[number]) for number in (*life.rows, *life.baselines)]
        counters = (metric_count(life) - len(life.rows)) * ROW_BYTES[COUNTER]
        return size_of_life(life.instance, life.app, len(life.parts)) + sum(rows) + counters

    def forget(self, partition: str, now_ms: int) -> set[int]:
        """Forget the lives of a partition without a record for `forget_after` by `now_ms`.

        Their counts stay in the sums, and their rows are deleted. `now_ms` is never above the partition's clock. Return
        the metrics whose forgotten sums changed.
        """
        due = {(life.instance, life.app, life.life): life for life in self._forgetting.pop(partition, now_ms)}
        lives = [life for _, life in sorted(due.items()) if self.instances.has(life)]
        if not lives:
            return set()
        self.sums.apply_changes()
        for life in lives:
            self.delete(life)
            self.blocks_to_rows(life)
            self.holders.remove_rows(life, life.rows)
        self.state.forgotten += len(lives)
        changed = self.sums.forget(lives)
        for life in lives:
            self.release((*life.rows, *life.baselines))
        return changed

    def add_metric(self, metric_id: MetricId) -> int:
        """Add a new metric, and return its number: the next one."""
        number, self.next_number = self.next_number, self.next_number + 1
        self.numbers.add(metric_id, number)
        self.state.metrics[number] = metric_id
        self.size.add(metric_id[0], size_of_metric(metric_id))
        return number

    def include(self, life: Life, part: int, record: Record, value: bytes | None = None) -> None:
        """Note that a part of a life includes a record now, and publish it with the next rows.

        `value` is that of the record if it has exactly the part's metrics.
        """
        if life.partition == record.partition_name:  # offsets of another partition have another order
            life.offsets[part] = record.offset
        self.rows.change(life, part, value)

    def publish_all(self) -> None:
        """Publish all parts of all lives with the next rows."""
        self.unstored.update(life.id for life in self.instances)
        self.rows.change_all(self.instances)

    def add_event(self, kind: str, life: Life, record: Record, detail: str = "") -> None:
        """Add an event that a record caused."""
        self.events.append(Event(kind, life.app, life.instance, life.life, record.clock_ms, *record.location, detail))

    def add_limit_event(self, life: Life, limit: str, record: Record) -> None:
        """Add an event the first time a life reaches a limit."""
        if limit not in life.limits:
            life.limits.append(limit)
            self.add_event("limit", life, record, limit)
