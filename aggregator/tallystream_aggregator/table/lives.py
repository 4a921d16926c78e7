"""The lives of a shard: finds them by instance, forgets them, and collects what changed."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from tallystream.ulid import ulid_ms
from tallystream_aggregator.table.layouts import Layouts, counts_of, metric_count
from tallystream_aggregator.table.outputs import Event
from tallystream_aggregator.table.rows import LifeNumbers, TableRecord, life_key, life_row, metric_json
from tallystream_aggregator.table.state import Row
from tallystream_aggregator.table.sums.metric_sums import MetricSums

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tallystream_aggregator.table.decode import Record
    from tallystream_aggregator.table.limits import TableSettings
    from tallystream_aggregator.table.state import Life, MetricId, State


class LifeCounts:
    """Counts the `lives`, the `living` ones, the `instances` that have one of these, and the `rows`.

    The counts are as of the last `flush()`. It also has lower bounds of the times at which the next life falls silent.
    A record makes its life due later and leaves the bound unchanged. When a bound is reached, `rescan` visits all lives
    and makes the bounds exact, which happens once in several reporting intervals.

    Args:
        state: whose lives are counted.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._changed = set(state.lives)
        self._counted: dict[str, tuple[int, int, int]] = {}  # by instance: its lives, living ones, and rows
        # By partition: the time of its clock before which no life falls silent.
        self._next_silence_ms: dict[str, int] = {}
        self.lives = self.living = self.instances = self.rows = 0

    @property
    def counts(self) -> LifeNumbers:
        """The counts as of the last `flush()`."""
        return LifeNumbers(self.lives, self.living, self.instances, self.rows)

    def mark_dirty(self, instance: str) -> None:
        """Have the next `flush` count the lives of an instance again."""
        self._changed.add(instance)

    def flush(self) -> None:
        """Count the lives of the instances that changed."""
        for instance in self._changed:
            lives = self._state.lives.get(instance, ())
            living = sum(life.living for life in lives)
            now = (len(lives), living, sum(metric_count(life) for life in lives))
            before = self._counted.pop(instance, (0, 0, 0))
            self.lives += now[0] - before[0]
            self.living += now[1] - before[1]
            self.rows += now[2] - before[2]
            self.instances += (living > 0) - (before[1] > 0)
            if lives:
                self._counted[instance] = now
            for life in lives:
                self._include_in_bounds(life)
        self._changed.clear()

    def rescan(self) -> None:
        """Visit all lives, and make the bounds exact."""
        self.flush()
        self._next_silence_ms = {}
        for lives in self._state.lives.values():
            for life in lives:
                self._include_in_bounds(life)

    def next_silence_ms(self) -> Mapping[str, int]:
        """Return, by partition, the time of its clock before which no life falls silent. Only living lives count."""
        self.flush()
        return self._next_silence_ms

    def _include_in_bounds(self, life: Life) -> None:
        partition = life.partition
        if life.living:
            due = life.deadline_ms
            self._next_silence_ms[partition] = min(self._next_silence_ms.get(partition, due), due)


SHORT_FORM_LIFE = ""

MAX_SEARCHED = 16
"""The most lives of an instance that are searched one by one. Of an instance with more, an index finds a life."""

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
        self._settings = settings
        self._numbers = {metric: number for number, metric in enumerate(state.metrics)}
        self._index: dict[str, dict[tuple[str, str], Life]] = {}  # of instances with many lives, by app and life
        self._changed: dict[int, tuple[Life, set[int]]] = {}
        self._deleted: list[TableRecord] = []
        # By partition: until when the heap has all lives, and the lives by the time at which they are due, or earlier.
        self._by_due: dict[str, tuple[int, list[tuple[int, int, Life]]]] = {}

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

    def find(self, instance: str, app: str, life: str) -> Life | None:
        """Return a life, or None if there is none."""
        lives = self.lives_of(instance)
        if len(lives) > MAX_SEARCHED:
            index = self._index.get(instance)
            if index is None:
                index = self._index[instance] = {(one.app, one.life): one for one in lives}
            return index.get((app, life))
        # The newest life is the one that most records are of.
        return next((one for one in reversed(lives) if one.life == life and one.app == app), None)

    def add(self, life: Life, record: Record, clock: int, seq: int = 0) -> Life:
        """Add a new life, whose first snapshot has this `seq`. If its instance restarted, that is a `restart` event."""
        if life.life != SHORT_FORM_LIFE and self._is_restart(life, self.lives_of(life.instance), seq):
            self.add_event("restart", life, record, clock)
        self.state.lives.setdefault(life.instance, []).append(life)
        if life.instance in self._index:
            self._index[life.instance][life.app, life.life] = life
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

    def remove(self, life: Life) -> None:
        """Remove a life and its rows."""
        self.mark_dirty(life.instance)
        self._index.pop(life.instance, None)
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
        due = self._due(partition, now_ms)
        if not due:
            return set()
        self.sums.apply_changes()
        for life in due:
            self.remove(life)
            self._changed.pop(id(life), None)
            self.layouts.blocks_to_rows(life)
            self._deleted += [TableRecord(life_key(life, part), None) for part in sorted({*life.parts, *life.offsets})]
        self.state.forgotten += len(due)
        return self.sums.forget(due)

    def _due(self, partition: str, now_ms: int) -> list[Life]:
        """Return the lives of a partition that are due to be forgotten. Each is returned once."""
        after_ms = self._settings.forget_after_ms
        until_ms, heap = self._by_due.get(partition, (0, []))
        if now_ms >= until_ms:
            mine = (life for life in self if life.partition == partition and life.life != SHORT_FORM_LIFE)
            heap = [(life.keep_ms + after_ms, number, life) for number, life in enumerate(mine)]
            heapify(heap)
            # A life that is new in this partition has a later record, so it is due when the heap is made again.
            self._by_due[partition] = now_ms + after_ms, heap
        due = []
        while heap and heap[0][0] <= now_ms:
            _, number, life = heappop(heap)
            if life.partition == partition and life.keep_ms + after_ms > now_ms:
                heappush(heap, (life.keep_ms + after_ms, number, life))
            elif life.partition == partition:
                due.append(life)
        return sorted(due, key=lambda life: (life.instance, life.app, life.life))

    def number_of(self, metric_id: MetricId) -> int:
        """Return the number of a metric, or -1 if it is new."""
        return self._numbers.get(metric_id, -1)

    def add_metric(self, metric_id: MetricId) -> int:
        """Return the number of a metric. A new metric gets the next number."""
        number = self._numbers.get(metric_id)
        if number is None:
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

    def delete(self, life: Life) -> None:
        """Remove a life, and delete its row on `metrics-table`."""
        self.remove(life)
        self._changed.pop(id(life), None)
        self._deleted.append(TableRecord(life_key(life, 0), None))

    def pop_rows(self) -> dict[bytes, TableRecord]:
        """Return the records of changed lives, or of all lives if none was published yet, and clear the list."""
        found = {row.key: row for row in self._deleted}
        changed = list(self._changed.values()) if self.state.published else self._all_parts()
        for life, parts in changed:
            for part in sorted(parts):
                row = life_row(life, part, *self._part_json(life, part))
                found[row.key] = row
        self._deleted, self._changed = [], {}
        return found

    def _part_json(self, life: Life, part: int) -> tuple[str, int]:
        """Return the rows of a part as JSON, in the order of the metrics' numbers, and how many there are."""
        seq, block = life.parts.get(part, 0), life.blocks.get(part)
        texts = {n: metric_json(self.state.metrics[n], row, seq) for n, row in life.rows.items() if row.part == part}
        if block is None:
            return ",".join(texts[number] for number in sorted(texts)), len(texts)
        layout, counts = self.layouts.layout_for(block), counts_of(block)
        if len(texts) == len(layout.others) and all(number in texts for _, number in layout.others):
            return layout.text(counts, texts), len(layout.numbers)
        for number, count in zip(layout.counters, counts, strict=True):
            texts[number] = metric_json(self.state.metrics[number], Row(part, seq, (count,)), seq)
        return ",".join(texts[number] for number in sorted(texts)), len(texts)

    def _all_parts(self) -> list[tuple[Life, set[int]]]:
        self.dirty.update(self.state.lives)
        return [(life, set(life.parts or (0,))) for life in self]

    def add_event(self, kind: str, life: Life, record: Record, clock: int, detail: str = "") -> None:
        """Add an event that a record caused."""
        self.events.append(Event(kind, life.app, life.instance, life.life, clock, record.location, detail))

    def add_limit_event(self, life: Life, limit: str, record: Record, clock: int) -> None:
        """Add an event the first time a life reaches a limit."""
        if limit not in life.limits:
            life.limits.append(limit)
            self.add_event("limit", life, record, clock, limit)
