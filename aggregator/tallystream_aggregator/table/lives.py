"""The lives in a shard's state: found by instance, moved to disk and back (rule 3); and what was touched and changed.

Where a life is, in memory or on disk, decides nothing: a record finds it in both. So it does not matter when it moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.table.arithmetic.partial_sums import is_kept
from tallystream_aggregator.table.layouts import Layouts, counts_of, size
from tallystream_aggregator.table.outputs import Event
from tallystream_aggregator.table.rows import Counted, Published, life_key, life_row, metric_text
from tallystream_aggregator.table.state import Retiring, Row
from tallystream_aggregator.table.sums import Partials

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tallystream_aggregator.table.decode import Record
    from tallystream_aggregator.table.disk import Disk
    from tallystream_aggregator.table.limits import TableSettings
    from tallystream_aggregator.table.state import Life, MetricId, State


class Census:
    """The numbers of `lives`, `living` ones, `instances` that have one of these, and `rows`, as of the last `settle()`.

    And when the next life may fall silent or retire. These times are bounds: nobody is due before them. A life that is
    heard of is due later than its bound says. So when a bound is reached, all lives are looked at, and the bounds are
    exact again: once in some intervals of the lives that report.

    Args:
        state: whose lives are counted.
        retires_ms: tells the time of its partition's clock at which a life retires.
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
        """The numbers as of the last `settle()`."""
        return Counted(self.lives, self.living, self.instances, self.rows)

    def mark(self, instance: str) -> None:
        """Take that an instance's lives are changing, or will have changed by the next question."""
        self._changed.add(instance)

    def settle(self) -> None:
        """Count what changed."""
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

    def look(self) -> None:
        """Make the bounds exact."""
        self.settle()
        self._silent, self._retired = {}, {}
        for lives in self._state.lives.values():
            for life in lives:
                self._expect(life)

    def silent_ms(self) -> Mapping[str, int]:
        """Return, by partition, a time of its clock before which no life falls silent; not of those without a life."""
        self.settle()
        return self._silent

    def some_may_retire(self) -> bool:
        """Tell whether a life may have retired by the clocks of the partitions."""
        self.settle()
        return any(self._state.clocks.get(partition, 0) >= due for partition, due in self._retired.items())

    def _expect(self, life: Life) -> None:
        partition = life.partition
        if life.living:
            due = life.deadline_ms
            self._silent[partition] = min(self._silent.get(partition, due), due)
        retires = self._retires_ms(life)
        self._retired[partition] = min(self._retired.get(partition, retires), retires)


SHORT_FORM_LIFE = ""

MOVED_AT_ONCE = 1_000
"""Lives that a batch moves to disk, and forgets, at most: what is due beyond that waits for the next one."""

CROWD = 8
"""Silent lives of one instance that stay in memory: of a program that restarts all the time, older ones go to disk."""


class Lives:
    """The lives and metrics of `state`, which it changes in place, and the events that this raises.

    `dirty` are the instances whose lives have changed in any way since the state was last stored.
    """

    def __init__(self, state: State, settings: TableSettings, disk: Disk) -> None:
        self.state = state
        self.disk = disk
        self.layouts = Layouts(state.metrics)
        self.partials = Partials(state, disk, self.layouts)
        self.events: list[Event] = []
        self.dirty: set[str] = set()
        self.census = Census(state, self._retires_ms)
        self._settings = settings
        self._numbers = {metric: number for number, metric in enumerate(state.metrics)}
        self._changed: dict[int, tuple[Life, set[int]]] = {}
        self._buried: list[Published] = []
        self._due: list[Life] = []
        self._crowded: set[str] = set()

    def __iter__(self) -> Iterator[Life]:
        for lives in self.state.lives.values():
            yield from lives

    def mark(self, instance: str) -> None:
        """Take that an instance's lives are changing: a caller that changes one calls this first."""
        self.dirty.add(instance)
        self.census.mark(instance)

    def of(self, instance: str) -> list[Life]:
        """Return the lives of an instance, oldest first."""
        return self.state.lives.get(instance, [])

    def find(self, instance: str, app: str, life: str) -> Life | None:
        """Return a life, in memory from now on wherever it was; None when there is none."""
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
        """Move every life of a partition from disk to memory that has one of these metrics: reads all of the disk."""
        if numbers.isdisjoint(self.state.held):  # no life that went to disk had one of them
            return
        for life in [one for one in self.disk if one.partition == partition and numbers & one.rows.keys()]:
            self._bring_back(life)

    def is_listed(self, instance: str, app: str, life: str) -> bool:
        """Tell whether a life is being forgotten."""
        listed = (gone.life for gone in (*self.state.leaving, *self.state.deleting))
        return any((gone.instance, gone.app, gone.life) == (instance, app, life) for gone in listed)

    def add(self, life: Life, record: Record, clock: int) -> Life:
        """Put a new life into the table: a restart, where its instance had one before."""
        others = self.state.lives.setdefault(life.instance, [])
        if life.life != SHORT_FORM_LIFE and (
            any(o.app == life.app and o.life != SHORT_FORM_LIFE for o in others)
            or self.disk.has_life_of(life.instance, life.app)
        ):
            self.event("restart", life, record, clock)
        others.append(life)
        if len(others) > CROWD:
            self._crowded.add(life.instance)
        return life

    def remove(self, life: Life) -> None:
        """Take a life out of the table, with its rows."""
        self.mark(life.instance)
        left = [other for other in self.of(life.instance) if other is not life]
        if left:
            self.state.lives[life.instance] = left
        else:
            del self.state.lives[life.instance]

    def retire(self) -> None:
        """Move lives to disk whose time has come, `MOVED_AT_ONCE` at most. No sum changes."""
        crowded = [life for instance in sorted(self._crowded) for life in self._silent_of(instance)[:-CROWD]]
        self._crowded.clear()
        if not self._due and self.census.some_may_retire():
            self._due = [life for life in self if self._is_due(life)]
            self._due.reverse()
            self.census.look()
        retiring = {id(life): life for life in crowded}
        while self._due and len(retiring) < MOVED_AT_ONCE:
            life = self._due.pop()
            if self._is_due(life) and any(life is known for known in self.of(life.instance)):
                retiring[id(life)] = life
        for life in retiring.values():
            self.remove(life)
            self.layouts.open_all(life)
            self.partials.retire(life)
        self.disk.add(retiring.values())

    def forget(self, now_ms: int) -> None:
        """Forget lives on disk of which no record came for `forget_after`, by their partition's clock and `now_ms`."""
        past = self.disk.past(self.state.clocks, now_ms, self._settings.forget_after_ms, MOVED_AT_ONCE)
        for life in past:
            self.disk.remove(life)
            for number in [number for number in life.rows if not is_kept(self.state.metrics[number][2])]:
                del life.rows[number]
            self.partials.forget(life)
            self.state.leaving.append(Retiring(self.state.fold + 1, life))
            self.state.forgotten += 1

    def known(self, metric_id: MetricId) -> int:
        """Return the number of a metric, -1 for one that has none."""
        return self._numbers.get(metric_id, -1)

    def number(self, metric_id: MetricId) -> int:
        """Return the number of a metric, a new one for one that has none."""
        number = self._numbers.get(metric_id)
        if number is None:
            number = self._numbers[metric_id] = len(self.state.metrics)
            self.state.metrics.append(metric_id)
        return number

    def change(self, life: Life, part: int, record: Record) -> None:
        """Mark a part of a life as changed by a record, which its rows include from now on."""
        if life.partition == record.clock_name:  # an offset of another partition says nothing about this one
            life.places[part] = record.offset
        self.publish(life, part)

    def publish(self, life: Life, part: int) -> None:
        """Have a part of a life published, whether it has changed or not."""
        self._changed.setdefault(id(life), (life, set()))[1].add(part)

    def publish_all(self, life: Life) -> None:
        """Have every part of a life published."""
        for part in life.parts or (0,):
            self.publish(life, part)

    def delete_all(self, life: Life) -> None:
        """Take a life out of the table at once, and its row off `metrics-table`."""
        self.remove(life)
        self._changed.pop(id(life), None)
        self._buried.append(Published(life_key(life, 0), None))

    def take_published(self) -> dict[bytes, Published]:
        """Return the records of the lives that changed, or of all where none was published yet; then forget them."""
        found = {row.key: row for row in self._buried}
        changed = list(self._changed.values()) if self.state.published else self._all_parts()
        for life, parts in changed:
            for part in sorted(parts):
                row = life_row(life, part, *self._texts(life, part), self.state.judged.get(life.partition, 0))
                found[row.key] = row
        self._buried, self._changed = [], {}
        return found

    def _texts(self, life: Life, part: int) -> tuple[str, int]:
        """Return the rows of a part as JSON, by number, and how many they are."""
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
        lives = [*self, *self.disk, *(leaving.life for leaving in self.state.leaving)]
        for life in lives:
            for part in life.parts or (0,):
                life.places.setdefault(part, self.state.offsets.get(life.partition, -1))
        return [(life, set(life.places)) for life in lives]

    def event(self, kind: str, life: Life, record: Record, clock: int, detail: str = "") -> None:
        """Say that a record made something happen to a life."""
        place = (record.topic, record.partition, record.offset)
        self.events.append(Event(kind, life.app, life.instance, life.life, clock, place, detail))

    def limit(self, life: Life, limit: str, record: Record, clock: int) -> None:
        """Say, once in a life, that it reached a limit."""
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
