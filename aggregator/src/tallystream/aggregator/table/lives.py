"""The lives in a shard's state: found by instance, gone when they retire (rule 3); and what was touched and changed.

Retiring is decided as if it took place at once: a life has retired when the clock is `retire_after_ms` past its last
record. Before a record of an instance is looked at, the instance's lives whose time has come leave; all others leave at
the end of a batch. As nothing but its own instance's records asks for a life, the delay shows nowhere. Nor does that
until a life that has left is in the base: sums count it as retired at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.aggregator.table.census import Census
from tallystream.aggregator.table.outputs import Event
from tallystream.aggregator.table.partials import Partials
from tallystream.aggregator.table.published import Published, life_key, life_row
from tallystream.aggregator.table.retired import is_kept
from tallystream.aggregator.table.state import Leaving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream.aggregator.table.inputs import Record
    from tallystream.aggregator.table.state import Life, MetricId, State

SHORT_FORM_LIFE = ""


class Lives:
    """The lives and metrics of `state`, which it changes in place, and the events that this raises.

    `dirty` are the instances whose lives have changed in any way since the state was last stored.
    """

    def __init__(self, state: State, retire_after_ms: int) -> None:
        self.state = state
        self.partials = Partials(state)
        self.events: list[Event] = []
        self.dirty: set[str] = set()
        self.census = Census(state, self._retires_ms)
        self._retire_after_ms = retire_after_ms
        self._numbers = {metric: number for number, metric in enumerate(state.metrics)}
        self._changed: dict[int, tuple[Life, set[int]]] = {}
        self._buried: list[Published] = []

    def __iter__(self) -> Iterator[Life]:
        for lives in self.state.lives.values():
            yield from lives

    def mark(self, instance: str) -> None:
        """Take that an instance's lives are changing: whoever changes one says so first."""
        self.dirty.add(instance)
        self.census.mark(instance)

    def of(self, instance: str) -> list[Life]:
        """Return the lives of an instance, oldest first."""
        return self.state.lives.get(instance, [])

    def find(self, instance: str, app: str, life: str) -> Life | None:
        """Return a life, None when it is not in the table."""
        for known in reversed(self.of(instance)):  # the newest life is the one that most records are of
            if known.life == life and known.app == app:
                return known
        return None

    def add(self, life: Life, record: Record, clock: int) -> Life:
        """Put a new life into the table: a restart, where its instance had one before."""
        others = self.state.lives.setdefault(life.instance, [])
        if life.life != SHORT_FORM_LIFE and any(o.app == life.app and o.life != SHORT_FORM_LIFE for o in others):
            self.event("restart", life, record, clock)
        others.append(life)
        return life

    def remove(self, life: Life) -> None:
        """Take a life out of the table, with its rows."""
        self.mark(life.instance)
        left = [other for other in self.of(life.instance) if other is not life]
        if left:
            self.state.lives[life.instance] = left
        else:
            del self.state.lives[life.instance]

    def retire(self, instance: str, clock: int) -> None:
        """Retire the instance's lives whose time has come by `clock`."""
        for life in [life for life in self.of(instance) if self._has_retired(life, clock)]:
            self._leave(life)

    def retire_all(self) -> None:
        """Retire every life whose time has come by the clock of its partition."""
        if not self.census.some_may_retire():
            return
        clocks = self.state.clocks
        for life in [life for life in self if self._has_retired(life, clocks.get(life.partition, 0))]:
            self._leave(life)
        self.census.look()

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
        self._changed.setdefault(id(life), (life, set()))[1].add(part)

    def bury(self, life: Life) -> None:
        """Take a life out of the table at once, and its row off `metrics-table`."""
        self.remove(life)
        self._changed.pop(id(life), None)
        self._buried.append(Published(life_key(life, 0), None))

    def take_published(self) -> dict[bytes, Published]:
        """Return the records of the lives that changed, or of all where none was published yet; then forget them."""
        found = {row.key: row for row in self._buried}
        changed = list(self._changed.values()) if self.state.published else self._all_parts()
        for life, parts in changed:
            rows = sorted(life.rows.items())
            for part in sorted(parts):
                mine = [(self.state.metrics[number], row) for number, row in rows if row.part == part]
                published = life_row(life, part, mine)
                found[published.key] = published
        self._buried, self._changed = [], {}
        return found

    def _all_parts(self) -> list[tuple[Life, set[int]]]:
        self.dirty.update(self.state.lives)
        lives = [*self, *(leaving.life for leaving in self.state.leaving)]
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

    def _has_retired(self, life: Life, clock: int) -> bool:
        retires_ms = self._retires_ms(life)
        return retires_ms is not None and clock >= retires_ms

    def _retires_ms(self, life: Life) -> int | None:
        # Rows of the short form end only by a tombstone: without a life there is no telling a late one from a new one.
        return None if life.life == SHORT_FORM_LIFE else life.keep_ms + self._retire_after_ms

    def _leave(self, life: Life) -> None:
        self.partials.touch(life, life.rows)
        self.remove(life)
        life.living = False
        for number in [number for number in life.rows if not is_kept(self.state.metrics[number][2])]:
            del life.rows[number]
        self.partials.left(life)
        self.state.leaving.append(Leaving(self.state.fold + 1, life))
        self.state.retired += 1
        at_ms = life.keep_ms + self._retire_after_ms
        self.events.append(Event("retired", life.app, life.instance, life.life, at_ms))
