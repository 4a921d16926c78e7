"""The lives of a shard: found by instance, moved to disk and back (rule 3), and what changed in a batch.

A record finds a life in memory and on disk alike, so no result depends on when a life moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.ulid import ulid_ms
from tallystream_aggregator.table.arithmetic.partial_sums import is_kept
from tallystream_aggregator.table.layouts import Layouts, counts_of, size
from tallystream_aggregator.table.outputs import Event
from tallystream_aggregator.table.rows import Counted, TableRecord, life_key, life_row, metric_text
from tallystream_aggregator.table.state import Retiring, Row
from tallystream_aggregator.table.sums import Partials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tallystream_aggregator.table.decode import Record
    from tallystream_aggregator.table.disk import Disk
    from tallystream_aggregator.table.limits import TableSettings
    from tallystream_aggregator.table.state import Life, MetricId, State


class LifeCounts:
    """The numbers of `lives`, `living` ones, `instances` that have one of these, and `rows`, as of the last `flush()`.

    It also knows when the next life may fall silent or retire. These times are lower bounds: no life is due earlier. A
    record makes its life due later and leaves the bound as it is. When a bound is reached, `rescan` visits all lives
    and makes the bounds exact, which happens once in several reporting intervals.

    Args:
        state: whose lives are counted.
        retires_ms: returns the time of its partition's clock at which a life retires.
    """

    def __init__(self, state: State, retires_ms: Callable[[Life], int]) -> None:
        self._state, self._retires_ms = state, retires_ms
        self._changed = set(state.lives)
        self._counted: dict[str, tuple[int, int, int]] = {}  # by instance: its lives, living ones, and rows
        self._silent: dict[str, int] = {}  # by partition: the time of its clock before which no life falls silent
        self._retired: dict[str, int] = {}
        self.lives = self.living = self.instances = self.rows = 0

    @property
    def counted(self) -> Counted:
        """The numbers as of the last `flush()`."""
        return Counted(self.lives, self.living, self.instances, self.rows)

    def mark(self, instance: str) -> None:
        """Note that an instance's lives change before the next `flush`."""
        self._changed.add(instance)

    def flush(self) -> None:
        """Count the lives of the instances that changed."""
        for instance in self._changed:
            lives = self._state.lives.get(instance, ())
            living = sum(life.living for life in lives)
            now = (len(lives), living, sum(size(life) for life in lives))
            before = self._counted.pop(instance, (0, 0, 0))
            self.lives += now[0] - before[0]
            self.living += now[1] - before[1]
            self.rows += now[2] - before[2]
            self.instances += (living > 0) - (before[1] > 0)
            if lives:
                self._counted[instance] = now
            for life in lives:
                self._expect(life)
        self._changed.clear()

    def rescan(self) -> None:
        """Visit all lives, and make the bounds exact."""
        self.flush()
        self._silent, self._retired = {}, {}
        for lives in self._state.lives.values():
            for life in lives:
                self._expect(life)

    def silent_ms(self) -> Mapping[str, int]:
        """Return, by partition, the time of its clock before which no life falls silent. Only living lives count."""
        self.flush()
        return self._silent

    def some_may_retire(self) -> bool:
        """Tell whether a life may be due to retire, by the clocks of the partitions."""
        self.flush()
        return any(self._state.clocks.get(partition, 0) >= due for partition, due in self._retired.items())

    def _expect(self, life: Life) -> None:
        partition = life.partition
        if life.living:
            due = life.deadline_ms
            self._silent[partition] = min(self._silent.get(partition, due), due)
        retires = self._retires_ms(life)
        self._retired[partition] = min(self._retired.get(partition, retires), retires)


SHORT_FORM_LIFE = ""

MAX_MOVED = 1_000
"""The most lives that one batch moves to disk, or forgets. The rest waits for the next batch."""

MAX_SILENT_LIVES = 8
"""The most silent lives of one instance that stay in memory.

Older ones of an instance that restarts often go to disk.
"""


class Lives:
    """The lives and metrics of `state`, which it changes in place, and the events of the batch.

    `dirty` are the instances whose lives have changed since the state was last stored.
    """

    def __init__(self, state: State, settings: TableSettings, disk: Disk) -> None:
        self.state = state
        self.disk = disk
        self.layouts = Layouts(state.metrics)
        self.partials = Partials(state, disk, self.layouts)
        self.events: list[Event] = []
        self.dirty: set[str] = set()
        self.life_counts = LifeCounts(state, self._retires_ms)
        self._settings = settings
        self._numbers = {metric: number for number, metric in enumerate(state.metrics)}
        self._changed: dict[int, tuple[Life, set[int]]] = {}
        self._deleted: list[TableRecord] = []
        self._due: list[Life] = []
        self._crowded: set[str] = set()

    def __iter__(self) -> Iterator[Life]:
        for lives in self.state.lives.values():
            yield from lives

    def mark(self, instance: str) -> None:
        """Note that an instance's lives change. A caller calls this before it changes one."""
        self.dirty.add(instance)
        self.life_counts.mark(instance)

    def of(self, instance: str) -> list[Life]:
        """Return the lives of an instance, oldest first."""
        return self.state.lives.get(instance, [])

    def find(self, instance: str, app: str, life: str) -> Life | None:
        """Return a life, or None if there is none. A life on disk is moved to memory."""
        for known in reversed(self.of(instance)):  # the newest life is the one that most records are of
            if known.life == life and known.app == app:
                return known
        on_disk = self.disk.find(instance, app, life)
        if on_disk is not None:
            self._bring_back(on_disk)
        return on_disk

    def bring_all_back(self, instance: str) -> None:
        """Move every life of an instance from disk to memory."""
        for life in self.disk.all_of(instance):
            self._bring_back(life)

    def bring_back_with(self, numbers: set[int], partition: str) -> None:
        """Move the lives of a partition that have one of these metrics to memory. Reads all lives on disk."""
        if numbers.isdisjoint(self.state.held):  # no life that went to disk had one of them
            return
        for life in [one for one in self.disk if one.partition == partition and numbers & one.rows.keys()]:
            self._bring_back(life)

    def is_listed(self, instance: str, app: str, life: str) -> bool:
        """Tell whether a life is being forgotten."""
        listed = (gone.life for gone in (*self.state.retiring, *self.state.deleting))
        return any((gone.instance, gone.app, gone.life) == (instance, app, life) for gone in listed)

    def add(self, life: Life, record: Record, clock: int) -> Life:
        """Add a new life. If its instance restarted, that is a `restart` event."""
        others = self.state.lives.setdefault(life.instance, [])
        if life.life != SHORT_FORM_LIFE and self._is_restart(life, others):
            self.event("restart", life, record, clock)
        others.append(life)
        if len(others) > MAX_SILENT_LIVES:
            self._crowded.add(life.instance)
        return life

    def _is_restart(self, life: Life, others: list[Life]) -> bool:
        """Tell whether a new life is a restart: the instance had a life of this app before.

        A life that is not complete has the OTLP streams that began at one time, and a process has several of them. The
        instance restarted if this life begins after every point of the others.
        """
        of_app = [other for other in others if other.app == life.app and other.life != SHORT_FORM_LIFE]
        begun_ns = ulid_ms(life.life) * 1_000_000
        if not life.complete:
            of_app = [other for other in of_app if other.complete or ulid_ms(other.life)]
            if not begun_ns or any(not o.complete and max(o.parts.values(), default=0) >= begun_ns for o in of_app):
                return False
        return bool(of_app) or self.disk.has_life_of(life.instance, life.app)

    def remove(self, life: Life) -> None:
        """Remove a life and its rows from memory."""
        self.mark(life.instance)
        left = [other for other in self.of(life.instance) if other is not life]
        if left:
            self.state.lives[life.instance] = left
        else:
            del self.state.lives[life.instance]

    def retire(self) -> None:
        """Move lives that are due to disk, at most `MAX_MOVED`. No sum changes."""
        crowded = [life for instance in sorted(self._crowded) for life in self._silent_of(instance)[:-MAX_SILENT_LIVES]]
        self._crowded.clear()
        if not self._due and self.life_counts.some_may_retire():
            self._due = [life for life in self if self._is_due(life)]
            self._due.reverse()
            self.life_counts.rescan()
        retiring = {id(life): life for life in crowded}
        while self._due and len(retiring) < MAX_MOVED:
            life = self._due.pop()
            if self._is_due(life) and any(life is known for known in self.of(life.instance)):
                retiring[id(life)] = life
        for life in retiring.values():
            self.remove(life)
            self.layouts.open_all(life)
            self.partials.retire(life)
        self.disk.add(retiring.values())

    def forget(self, now_ms: int) -> None:
        """Forget lives on disk without a record for `forget_after`, by their partition's clock and by `now_ms`."""
        past = self.disk.past(self.state.clocks, now_ms, self._settings.forget_after_ms, MAX_MOVED)
        for life in past:
            self.disk.remove(life)
            for number in [number for number in life.rows if not is_kept(self.state.metrics[number][2])]:
                del life.rows[number]
            self.partials.forget(life)
            self.state.retiring.append(Retiring(self.state.list_id + 1, life))
            self.state.forgotten += 1

    def known(self, metric_id: MetricId) -> int:
        """Return the number of a metric, or -1 if it is new."""
        return self._numbers.get(metric_id, -1)

    def number(self, metric_id: MetricId) -> int:
        """Return the number of a metric. A new metric gets the next number."""
        number = self._numbers.get(metric_id)
        if number is None:
            number = self._numbers[metric_id] = len(self.state.metrics)
            self.state.metrics.append(metric_id)
        return number

    def change(self, life: Life, part: int, record: Record) -> None:
        """Note that the rows of a part now include a record."""
        if life.partition == record.clock_name:  # an offset of another partition says nothing about this one
            life.places[part] = record.offset
        self.publish(life, part)

    def publish(self, life: Life, part: int) -> None:
        """Publish a part of a life with this batch, whether it has changed or not."""
        self._changed.setdefault(id(life), (life, set()))[1].add(part)

    def publish_all(self, life: Life) -> None:
        """Publish every part of a life with this batch."""
        for part in life.parts or (0,):
            self.publish(life, part)

    def delete_all(self, life: Life) -> None:
        """Remove a life from the table, and delete its row from `metrics-table`."""
        self.remove(life)
        self._changed.pop(id(life), None)
        self._deleted.append(TableRecord(life_key(life, 0), None))

    def pop_rows(self) -> dict[bytes, TableRecord]:
        """Return the records of changed lives, or of all lives if none was published yet, and clear the list."""
        found = {row.key: row for row in self._deleted}
        changed = list(self._changed.values()) if self.state.published else self._all_parts()
        for life, parts in changed:
            for part in sorted(parts):
                row = life_row(life, part, *self._texts(life, part), self.state.judged.get(life.partition, 0))
                found[row.key] = row
        self._deleted, self._changed = [], {}
        return found

    def _texts(self, life: Life, part: int) -> tuple[str, int]:
        """Return the rows of a part as JSON, in the order of their numbers, and how many there are."""
        seq, block = life.parts.get(part, 0), life.blocks.get(part)
        texts = {n: metric_text(self.state.metrics[n], row, seq) for n, row in life.rows.items() if row.part == part}
        if block is None:
            return ",".join(texts[number] for number in sorted(texts)), len(texts)
        layout, counts = self.layouts.of(block), counts_of(block)
        if len(texts) == len(layout.others) and all(number in texts for _, number in layout.others):
            return layout.text(counts, texts), len(layout.numbers)
        for number, count in zip(layout.counters, counts, strict=True):
            texts[number] = metric_text(self.state.metrics[number], Row(part, seq, (count,)), seq)
        return ",".join(texts[number] for number in sorted(texts)), len(texts)

    def _all_parts(self) -> list[tuple[Life, set[int]]]:
        self.dirty.update(self.state.lives)
        lives = [*self, *self.disk, *(retiring.life for retiring in self.state.retiring)]
        return [(life, set(life.parts or (0,))) for life in lives]

    def event(self, kind: str, life: Life, record: Record, clock: int, detail: str = "") -> None:
        """Add an event that a record caused."""
        place = (record.topic, record.partition, record.offset)
        self.events.append(Event(kind, life.app, life.instance, life.life, clock, place, detail))

    def limit(self, life: Life, limit: str, record: Record, clock: int) -> None:
        """Add an event the first time a life reaches a limit."""
        if limit not in life.limits:
            life.limits.append(limit)
            self.event("limit", life, record, clock, limit)

    def _bring_back(self, life: Life) -> None:
        self.disk.remove(life)
        self.partials.bring_back(life)
        self.state.lives.setdefault(life.instance, []).append(life)
        self.mark(life.instance)

    def _silent_of(self, instance: str) -> list[Life]:
        return [life for life in self.of(instance) if not life.living]

    def _is_due(self, life: Life) -> bool:
        return not life.living and self.state.clocks.get(life.partition, 0) >= self._retires_ms(life)

    def _retires_ms(self, life: Life) -> int:
        retires_ms = life.keep_ms + self._settings.retire_after_ms
        return max(retires_ms, life.deadline_ms) if life.living else retires_ms
