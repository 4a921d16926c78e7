"""The lives of a shard: by instance, and by the time at which they fall silent or are forgotten.

What would need a visit of all lives of an instance is kept by differences.
"""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from heapq import heappop, heappush, heapreplace
from itertools import chain, count
from typing import TYPE_CHECKING, Final

from tallystream.ulid import ulid_ms
from tallystream_aggregator.instances import state_of
from tallystream_aggregator.table.instances import InstanceNumbers, last_seen, state_by
from tallystream_aggregator.table.layouts import metric_count

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from tallystream_aggregator.instances import InstanceState
    from tallystream_aggregator.table.records.decode import Forget
    from tallystream_aggregator.table.state import Life, LifeId, LifeName, State

SHORT_FORM_LIFE = ""

FEW_LIVES = 16
"""Most instances have one life or two, those of OTLP often ten. Up to so many are visited when all are asked for."""

MIN_ADDED = 1_000
"""So many entries of lives that are gone, or are there twice, are left alone."""

MAX_COLLECTION_NS = 60_000_000_000
"""How long the collection of an SDK may take, in ns."""

_NO_TIME = "0" * 10
"""The begin of a ULID without a time: that of gauges of OTLP."""

_NO_LIVES: Final[dict[LifeName, Life]] = {}


class _AppLives:
    """The lives of one app in an instance.

    `lives` are all but that of the short form. `filled` are those that are not empty, and some that have become empty
    since they were last asked for. `newest` is the highest seq or begin of those with a known begin, -1 if there are
    none, and 0 for complete lives. `last` is the life with the last record. None stands for what has to be found again.
    `living` is the number of living lives.
    """

    __slots__ = ("filled", "last", "lives", "living", "newest")

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}
        self.filled: dict[str, Life] = {}
        self.newest: int | None = -1
        self.last: Life | None = None
        self.living = 0

    def add(self, life: Life) -> None:
        """Add a life, which may be about to change."""
        self.filled[life.life] = life
        self.living += life.living
        self.note_seen(life, is_later=True)
        if life.life != SHORT_FORM_LIFE:
            self.lives[life.life] = life
            self.newest = None if self.newest is None else max(self.newest, _newest(life))

    def remove(self, life: Life) -> None:
        """Remove a life."""
        self.filled.pop(life.life, None)
        self.living -= life.living
        self.note_seen(life, is_later=False)
        if self.lives.pop(life.life, None) is not None and _newest(life) == self.newest:
            self.newest = None

    def note_seq(self, life: Life, seq: int) -> None:
        """Note that a life has this seq now."""
        if self.newest is not None and seq > self.newest and _has_begin(life):
            self.newest = seq

    def note_seen(self, life: Life, *, is_later: bool) -> None:
        """Note that the time of the last record of a life has changed."""
        if self.last is life and not is_later:
            self.last = None
        elif self.last is not None and last_seen(life) > last_seen(self.last):
            self.last = life

    def state(self) -> InstanceState:
        """Return the state of the instance in this app."""
        if self.last is None:
            self.last = max(chain(self.lives.values(), self.filled.values()), key=last_seen)
        return state_of(is_living=self.living > 0, is_final=self.last.final)

    def newest_seq(self) -> int:
        """Return `newest`."""
        if self.newest is None:
            self.newest = max(map(_newest, self.lives.values()), default=-1)
        return self.newest


def _has_begin(life: Life) -> bool:
    """Tell whether a life has OTLP streams with a begin. Gauges have none."""
    return not life.complete and not life.life.startswith(_NO_TIME)


def _newest(life: Life) -> int:
    """Return the newest seq or the begin of a life of OTLP streams, whichever is later, and -1 for one of gauges.

    The begin is later if the streams began while the SDK collected: their points have the time when that began.
    """
    if not _has_begin(life):
        return 0 if life.complete else -1
    return max((_begin_ns(life), *life.parts.values()))


def _begin_ns(life: Life) -> int:
    return ulid_ms(life.life) * 1_000_000


class _InstanceLives:
    """The lives of one instance by app, and the living ones."""

    __slots__ = ("apps", "living")

    def __init__(self, lives: Iterable[Life]) -> None:
        self.apps: dict[str, _AppLives] = {}
        self.living: dict[LifeName, Life] = {}
        for life in lives:
            self.add(life)

    def add(self, life: Life) -> None:
        """Add a life."""
        if life.living:
            self.living[life.name] = life
        if life.app not in self.apps:
            self.apps[life.app] = _AppLives()
        self.apps[life.app].add(life)

    def remove(self, life: Life) -> None:
        """Remove a life."""
        self.living.pop(life.name, None)
        app = self.apps[life.app]
        app.remove(life)
        if not (app.lives or app.filled):
            del self.apps[life.app]


class _Deadlines:
    """The lives of each partition by the time of its clock at which something is due.

    A life that has become due later, or has left the partition, is noticed when its first time has come.
    """

    def __init__(self, due_ms: Callable[[Life], int], lives: Lives) -> None:
        self._due_ms, self._lives, self._order = due_ms, lives, count()
        self.heaps: defaultdict[str, list[tuple[int, int, Life]]] = defaultdict(list)
        self._added = 0  # since the heaps had each life once

    def add(self, life: Life) -> None:
        """Add a life that is new in its partition, or is due earlier than before."""
        heappush(self.heaps[life.partition], (self._due_ms(life), next(self._order), life))
        self._added += 1
        if self._added > MIN_ADDED and self._added > 2 * self._lives.number:
            entries = [entry for heap in self.heaps.values() for entry in heap]
            lives = {id(life): life for _, _, life in entries if self._lives.has(life)}
            self.heaps.clear()
            for one in lives.values():
                heappush(self.heaps[one.partition], (self._due_ms(one), next(self._order), one))
            self._added = 0

    def pop(self, partition: str, now_ms: int) -> list[Life]:
        """Return the lives that are due, and remove them. A life that was added twice may be returned twice."""
        heap = self.heaps[partition]
        due: list[Life] = []
        while heap and heap[0][0] <= now_ms:
            life = heap[0][2]
            due_ms = self._due_ms(life)
            if life.partition != partition:
                heappop(heap)
            elif due_ms > now_ms:
                heapreplace(heap, (due_ms, next(self._order), life))
            else:
                due.append(heappop(heap)[2])
        return due


class Lives:
    """The lives of `state`, which are forgotten `forget_after_ms` after their last record.

    `number` counts them, and `rows` their metrics, to which a caller adds what it adds to a life. `changed` are those
    that have changed since the state was last stored. They may be gone. `instances` has the numbers of instances.
    """

    def __init__(self, state: State, forget_after_ms: int) -> None:
        self._state = state
        self._indexes: dict[str, _InstanceLives] = {}
        self.changed: dict[Life, None] = {}  # in order
        self.number = sum(map(len, state.lives.values()))
        self.rows = sum(map(metric_count, self))
        self._living = Counter(life.instance for life in self if life.living)
        self.instances = InstanceNumbers(self._state_of)
        for of_instance in state.lives.values():
            for app in {life.app for life in of_instance.values()}:
                self.instances.add(app, [life for life in of_instance.values() if life.app == app])
        self._silence = _Deadlines(lambda life: life.deadline_ms, self)
        for life in self:
            if life.living:
                self._silence.add(life)
        self.forget_after(forget_after_ms)

    def forget_after(self, ms: int) -> None:
        """Forget lives this time after their last record from now on."""
        self._forgetting = _Deadlines(lambda life: life.keep_ms + ms, self)
        for life in self:
            if life.life != SHORT_FORM_LIFE:
                self._forgetting.add(life)

    def __iter__(self) -> Iterator[Life]:
        for lives in self._state.lives.values():
            yield from lives.values()

    def find(self, app: str, instance: str, life: str) -> Life | None:
        """Return a life, or None if there is none."""
        return self._state.lives.get(instance, _NO_LIVES).get((app, life))

    def has(self, life: Life) -> bool:
        """Tell whether the table has this life, and not only a later one of the same name."""
        return self.find(life.app, life.instance, life.life) is life

    def add(self, life: Life) -> None:
        """Add a new life."""
        self.instances.will_change(life)
        self.number += 1
        self._count_living(life, life.living)
        self._state.lives.setdefault(life.instance, {})[life.name] = life
        self._set_due(life)
        index = self._indexes.get(life.instance)
        if index is not None:
            index.add(life)

    def remove(self, life: Life) -> None:
        """Remove a life."""
        self.changed[life] = None
        self.instances.will_change(life)
        self.number -= 1
        self.rows -= metric_count(life)
        self._count_living(life, -life.living)
        lives = self._state.lives[life.instance]
        del lives[life.name]
        if life.instance in self._indexes:
            self._indexes[life.instance].remove(life)
        if not lives:
            del self._state.lives[life.instance]
            self._indexes.pop(life.instance, None)

    def will_change(self, life: Life) -> None:
        """Note that a life is about to change."""
        self.changed[life] = None
        if life.living:
            return
        self.instances.will_change(life)
        index = self._indexes.get(life.instance)
        if index is not None:  # it may be empty
            index.apps[life.app].filled[life.life] = life

    def set_living(self, life: Life, *, living: bool) -> None:
        """Mark a life as living or silent."""
        self.changed[life] = None
        self.instances.will_change(life)
        more = living - life.living
        self._count_living(life, more)
        life.living = living
        if living:
            self._silence.add(life)
        index = self._indexes.get(life.instance)
        if index is None:
            return
        index.apps[life.app].living += more
        if living:
            index.living[life.name] = life
        else:
            index.living.pop(life.name, None)

    def set_last_seen(self, life: Life, partition: str, clock_ms: int, every_ms: int) -> None:
        """Set the time and the partition of the last record that was applied."""
        seen_ms, before_ms = life.last_seen_ms, life.every_ms
        life.last_seen_ms, life.every_ms = clock_ms, every_ms
        if life.partition != partition:
            life.partition = partition
            self._set_due(life)
        elif every_ms < before_ms:  # it may be due earlier, as time does not go back in a partition
            self._silence.add(life)
        index = self._indexes.get(life.instance)
        if index is not None:
            index.apps[life.app].note_seen(life, is_later=life.last_seen_ms >= seen_ms)

    def set_seq(self, life: Life, part: int, seq: int) -> None:
        """Set the seq of the newest snapshot of a part."""
        life.parts[part] = seq
        index = self._indexes.get(life.instance)
        if index is not None:
            index.apps[life.app].note_seq(life, seq)

    def living(self, instance: str) -> Collection[Life]:
        """Return the living lives of an instance."""
        if len(self._state.lives.get(instance, _NO_LIVES)) > FEW_LIVES:
            return self._index(instance).living.values()
        return [life for life in self._state.lives.get(instance, _NO_LIVES).values() if life.living]

    def filled(self, instance: str, forget: Forget | None) -> list[Life]:
        """Return the lives that a tombstone or a forget record changes, by app and name."""
        index = self._index(instance)
        found: list[Life] = []
        for app in index.apps if forget is None or forget.app is None else index.apps.keys() & {forget.app}:
            filled = index.apps[app].filled
            for name in filled.keys() & {forget.life} if forget is not None and forget.life else list(filled):
                if filled[name].is_empty:
                    del filled[name]
                else:
                    found.append(filled[name])
        return sorted(found, key=operator.attrgetter("name"))

    def is_restart(self, life: Life, seq: int) -> bool:
        """Tell whether a new life is a restart (rule 2): the instance had a life of its app. `seq` is its first one.

        A life of incomplete snapshots has the OTLP streams that began at one time, and a process has several such
        lives. The instance restarted if this life begins after all points and begins of the others. A stream that
        begins while the SDK collects may have a start after the time of its point, which is `seq`: then it begins then.
        """
        if life.life == SHORT_FORM_LIFE or life.instance not in self._state.lives:
            return False
        others = self._index(life.instance).apps.get(life.app)
        if others is None or life.complete:
            return others is not None and bool(others.lives)
        begin_ns = _begin_ns(life)
        if 0 < begin_ns - seq < MAX_COLLECTION_NS:
            begin_ns = seq
        return 0 <= others.newest_seq() < begin_ns

    def pop_silent(self) -> Iterator[Life]:
        """Yield once the living lives whose deadline has passed by the time of their partition (rule 5)."""
        for partition, clock in self._state.clocks.items():
            yield from (life for life in self._silence.pop(partition, clock) if life.living)

    def pop_forgotten(self, partition: str, now_ms: int) -> list[Life]:
        """Return once the lives of a partition that are to be forgotten by this time of its clock, by instance."""
        due = {(life.instance, *life.name): life for life in self._forgetting.pop(partition, now_ms)}
        return [life for _, life in sorted(due.items()) if self.has(life)]

    def pop_changes(self) -> tuple[dict[str, dict[LifeName, Life]], list[LifeId]]:
        """Return the lives that have changed since the last call, by instance, and those that are gone."""
        lives: dict[str, dict[LifeName, Life]] = {}
        gone: set[LifeId] = set()
        for life in self.changed:
            name = life.name
            known = self._state.lives.get(life.instance, _NO_LIVES).get(name)  # perhaps a later one of the same name
            if known is None:
                gone.add(life.id)
            else:
                lives.setdefault(life.instance, {})[name] = known
        self.changed = {}
        return lives, sorted(gone)

    def counts(self) -> dict[str, int]:
        """Return how many lives there are, living ones, instances that have one of these, and rows."""
        living = {"living": self.instances.living.total(), "instances": len(self._living)}
        return {"lives": self.number, "rows": self.rows} | living

    def _set_due(self, life: Life) -> None:
        if life.living:
            self._silence.add(life)
        if life.life != SHORT_FORM_LIFE:
            self._forgetting.add(life)

    def _count_living(self, life: Life, more: int) -> None:
        self.instances.count_living(life.app, more)
        self._living[life.instance] += more
        if not self._living[life.instance]:
            del self._living[life.instance]

    def _state_of(self, app: str, instance: str) -> InstanceState | None:
        lives = self._state.lives.get(instance, _NO_LIVES)
        if len(lives) <= FEW_LIVES:
            return state_by([life for life in lives.values() if life.app == app])
        of_app = self._index(instance).apps.get(app)
        return None if of_app is None else of_app.state()

    def _index(self, instance: str) -> _InstanceLives:
        index = self._indexes.get(instance)
        if index is None:
            lives = self._state.lives.get(instance, _NO_LIVES)
            index = _InstanceLives(lives.values())
            if len(lives) > FEW_LIVES:
                self._indexes[instance] = index
        return index
