"""The lives of a shard: finds them by instance, forgets them, and collects what changed."""

from __future__ import annotations

import operator
from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING

from tallystream.ulid import ulid_ms
from tallystream_aggregator.table.layouts import Layouts, counts_of, metric_count
from tallystream_aggregator.table.metric_sums import MetricSums
from tallystream_aggregator.table.outputs import Event
from tallystream_aggregator.table.rows import (
    NO_LIVES,
    LifeNumbers,
    PartMetrics,
    TableRecord,
    life_key,
    life_row,
    metric_json,
)
from tallystream_aggregator.table.state import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tallystream_aggregator.sums import MetricId
    from tallystream_aggregator.table.decode import Record
    from tallystream_aggregator.table.limits import TableSettings
    from tallystream_aggregator.table.state import Life, State


class LifeCounts:
    """Counts lives, living ones, instances that have one of these, and rows."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._changed = set(state.lives)
        self._counted: dict[str, LifeNumbers] = {}
        self._counts = NO_LIVES

    def mark_dirty(self, instance: str) -> None:
        """Have the lives of an instance counted again."""
        self._changed.add(instance)

    def counts(self) -> LifeNumbers:
        """Return the present counts."""
        for instance in self._changed:
            lives = self._state.lives.get(instance, ())
            living = sum(life.living for life in lives)
            now = LifeNumbers(len(lives), living, int(living > 0), sum(metric_count(life) for life in lives))
            before = self._counted.get(instance, NO_LIVES)
            if now == before:
                continue
            self._counts = LifeNumbers(*map(operator.add, self._counts, map(operator.sub, now, before)))
            self._counted[instance] = now
            if not lives:
                del self._counted[instance]
        self._changed.clear()
        return self._counts


class Deadlines:
    """The lives of each partition by the time of its clock at which something is due.

    A life that has become due later, or has left the partition, is noticed when its first time has come.
    """

    def __init__(self, due_ms: Callable[[Life], int]) -> None:
        self._due_ms, self._number = due_ms, count()
        self._heaps: dict[str, list[tuple[int, int, Life]]] = {}

    def add(self, life: Life) -> None:
        """Add a life that is new in its partition, or is due earlier than before."""
        heappush(self._heaps.setdefault(life.partition, []), (self._due_ms(life), next(self._number), life))

    def pop(self, partition: str, now_ms: int) -> list[Life]:
        """Return the lives that are due, and remove them. A life that was added twice may be returned twice."""
        heap: list[tuple[int, int, Life]] = self._heaps.get(partition, [])
        due: list[Life] = []
        while heap and heap[0][0] <= now_ms:
            life = heap[0][2]
            due_ms = self._due_ms(life)
            if life.partition != partition:
                heappop(heap)
            elif due_ms > now_ms:
                heapreplace(heap, (due_ms, next(self._number), life))
            else:
                due.append(heappop(heap)[2])
        return due


SHORT_FORM_LIFE = ""

MAX_COLLECTION_NS = 60_000_000_000
"""How long the collection of an SDK may take, in ns."""


class Lives:
    """The lives and metrics of `state`, which it changes in place, and the events since they were last taken.

    `dirty` are the instances whose lives have changed since the state was last stored.
    """

    def __init__(self, state: State, settings: TableSettings) -> None:
        self.state = state
        self.layouts = Layouts(state.metrics)
        self.sums = MetricSums(state, self.layouts)
        self.events: list[Event] = []
        self.dirty: set[str] = set()
        self.life_counts = LifeCounts(state)
        self._numbers = {metric: number for number, metric in enumerate(state.metrics)}
        self._lives = {(life.app, life.instance, life.life): life for life in self}
        self._changed: dict[int, tuple[Life, set[int]]] = {}
        self._deleted: list[TableRecord] = []
        self._silence = Deadlines(lambda life: life.deadline_ms)
        self._forgetting = Deadlines(lambda life: life.keep_ms + settings.forget_after_ms)
        for life in self:
            self._set_due(life)

    def __iter__(self) -> Iterator[Life]:
        for lives in self.state.lives.values():
            yield from lives

    def mark_dirty(self, instance: str) -> None:
        """Mark an instance whose lives are about to change."""
        self.dirty.add(instance)
        self.life_counts.mark_dirty(instance)

    def lives_of(self, instance: str) -> list[Life]:
        """Return the lives of an instance, oldest first."""
        return self.state.lives.get(instance, [])

    def find(self, app: str, instance: str, life: str) -> Life | None:
        """Return a life, or None if there is none."""
        return self._lives.get((app, instance, life))

    def add(self, life: Life, record: Record, seq: int = 0) -> Life:
        """Add a new life, whose first snapshot has this `seq`. If its instance restarted, that is a `restart` event."""
        if life.life != SHORT_FORM_LIFE and self._is_restart(life, self.lives_of(life.instance), seq):
            self.add_event("restart", life, record)
        self.state.lives.setdefault(life.instance, []).append(life)
        self._lives[life.app, life.instance, life.life] = life
        return life

    def _is_restart(self, life: Life, others: list[Life], seq: int) -> bool:
        """Tell whether a new life is a restart: its instance had a life of this app before.

        A life of incomplete snapshots has the OTLP streams that began at one time, and a process has several such
        lives. The instance restarted if this life begins after every point of the others. A stream that begins while
        the SDK collects may have a start after the time of its point, which is `seq`: then it begins at that time.
        """
        if life.complete:
            return any(other.app == life.app and other.life != SHORT_FORM_LIFE for other in others)
        begin_ns = ulid_ms(life.life) * 1_000_000
        if 0 < begin_ns - seq < MAX_COLLECTION_NS:
            begin_ns = seq
        is_restart = False
        # The newest lives come first: most new streams begin while other streams of their process go on.
        for other in reversed(others):
            if other.app != life.app or other.life == SHORT_FORM_LIFE or not (other.complete or ulid_ms(other.life)):
                continue
            if not begin_ns or (not other.complete and max(other.parts.values(), default=0) >= begin_ns):
                return False
            is_restart = True
        return is_restart

    def set_last_seen(self, life: Life, record: Record, every_ms: int) -> None:
        """Set the time and the partition of the last record that was applied."""
        partition, deadline_ms = record.partition_name, life.deadline_ms
        is_new_here = life.partition != partition  # it is new, or partitions were added and the instance moved here
        if is_new_here:
            life.offsets.clear()
            for part in life.parts:  # the rows of all parts have the life's partition
                self.publish(life, part)
        life.partition, life.last_seen_ms, life.every_ms = partition, record.clock_ms, every_ms
        if is_new_here:
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
                    self.mark_dirty(life.instance)
                    self.sums.set_living(life, living=False)

    def _set_due(self, life: Life) -> None:
        if life.living:
            self._silence.add(life)
        if life.life != SHORT_FORM_LIFE:
            self._forgetting.add(life)

    def _remove(self, life: Life) -> None:
        self.mark_dirty(life.instance)
        self._changed.pop(id(life), None)
        del self._lives[life.app, life.instance, life.life]
        others = [other for other in self.lives_of(life.instance) if other is not life]
        if others:
            self.state.lives[life.instance] = others
        else:
            del self.state.lives[life.instance]

    def forget(self, partition: str, now_ms: int) -> set[int]:
        """Forget the lives of a partition without a record for `forget_after` by `now_ms`.

        Their counts stay in the sums, and their rows are deleted. `now_ms` is never above the partition's clock. Return
        the metrics whose forgotten sums changed.
        """
        due = {(life.instance, life.app, life.life): life for life in self._forgetting.pop(partition, now_ms)}
        lives = [life for _, life in sorted(due.items()) if self.find(life.app, life.instance, life.life) is life]
        if not lives:
            return set()
        self.sums.apply_changes()
        for life in lives:
            self._remove(life)
            self.layouts.blocks_to_rows(life)
            self._deleted += [TableRecord(life_key(life, part), None) for part in sorted({*life.parts, *life.offsets})]
        self.state.forgotten += len(lives)
        return self.sums.forget(lives)

    def number_of(self, metric_id: MetricId) -> int:
        """Return the number of a metric, or -1 if it is new."""
        return self._numbers.get(metric_id, -1)

    def add_metric(self, metric_id: MetricId) -> int:
        """Add a new metric, and return its number: the next one."""
        number = self._numbers[metric_id] = len(self.state.metrics)
        self.state.metrics.append(metric_id)
        return number

    def mark_changed(self, life: Life, part: int, record: Record) -> None:
        """Publish a part of a life with the next rows: it now includes a record."""
        if life.partition == record.partition_name:  # offsets of another partition have another order
            life.offsets[part] = record.offset
        self.publish(life, part)

    def publish(self, life: Life, part: int) -> None:
        """Publish a part of a life with the next rows."""
        self._changed.setdefault(id(life), (life, set()))[1].add(part)

    def publish_all(self) -> None:
        """Publish all parts of all lives with the next rows."""
        self.dirty.update(self.state.lives)
        self._changed = {id(life): (life, set(life.parts or (0,))) for life in self}

    def delete(self, life: Life) -> None:
        """Remove a life, and delete its row on `metrics-table`."""
        self._remove(life)
        self._deleted.append(TableRecord(life_key(life, 0), None))

    def pop_rows(self) -> dict[bytes, TableRecord]:
        """Return the records of changed lives, and clear the list."""
        found = {row.key: row for row in self._deleted}
        for life, parts in self._changed.values():
            for part in sorted(parts):
                row = self._row(life, part)
                found[row.key] = row
        self._deleted, self._changed = [], {}
        return found

    def _row(self, life: Life, part: int) -> TableRecord:
        """Return the record of a part of a life. Its metrics are in the order of their numbers."""
        metrics, seq, block = self.state.metrics, life.parts.get(part, 0), life.blocks.get(part)
        rows = {number: row for number, row in life.rows.items() if row.part == part} if life.rows else {}
        layout = None if block is None else self.layouts.layout_for(block)
        if layout is not None and len(rows) > len(layout.others):  # the newest snapshot lacks some
            rows |= self.layouts.counter_rows(life, part)
            layout = None
        texts = {number: metric_json(metrics[number], row) for number, row in rows.items()}
        if block is None or layout is None:
            numbers = sorted(rows)
            text = ",".join(map(texts.__getitem__, numbers))
        else:
            numbers, text = layout.sorted, layout.text(counts_of(block), texts)
        older = {number: row.seq for number, row in rows.items() if row.seq != seq}
        places = {place: older[number] for place, number in enumerate(numbers) if number in older} if older else {}
        last = [] if life.life else [int(rows[number].values[1] or 0) for number in numbers]
        held = ""
        if life.baselines and not part:
            baselines = sorted(life.baselines.items())
            held = ",".join(metric_json(metrics[number], Row(part, seq, values)) for number, values in baselines)
        return life_row(life, part, PartMetrics(text, len(numbers), places, last, held))

    def add_event(self, kind: str, life: Life, record: Record, detail: str = "") -> None:
        """Add an event that a record caused."""
        self.events.append(Event(kind, life.app, life.instance, life.life, record.clock_ms, *record.location, detail))

    def add_limit_event(self, life: Life, limit: str, record: Record) -> None:
        """Add an event the first time a life reaches a limit."""
        if limit not in life.limits:
            life.limits.append(limit)
            self.add_event("limit", life, record, limit)
