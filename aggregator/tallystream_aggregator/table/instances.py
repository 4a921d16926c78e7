"""The lives of a shard by instance, and what would need a visit of all lives of an instance, kept by differences."""

from __future__ import annotations

import operator
from collections import Counter
from typing import TYPE_CHECKING, Final

from tallystream.ulid import ulid_ms
from tallystream_aggregator.table.layouts import metric_count
from tallystream_aggregator.table.rows import LifeNumbers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tallystream_aggregator.table.records.decode import Forget
    from tallystream_aggregator.table.state import Life, LifeName, State

SHORT_FORM_LIFE = ""

FEW_LIVES = 8
"""Most instances have one life or two. Up to so many are visited when something is asked of all of them."""

MAX_COLLECTION_NS = 60_000_000_000
"""How long the collection of an SDK may take, in ns."""

_NO_TIME = "0" * 10
"""The begin of a ULID without a time: that of gauges of OTLP."""

_NO_LIVES: Final[dict[LifeName, Life]] = {}


class _AppLives:
    """The lives of one app in an instance.

    `lives` counts them, and `begun` those with a known begin: all but those of gauges of OTLP and of the short form.
    `newest` is the highest seq of the incomplete ones among these, None if it has to be found again. `filled` are those
    that are not empty, and some that have become empty since they were last asked for.
    """

    __slots__ = ("begun", "filled", "lives", "newest")

    def __init__(self) -> None:
        self.lives = self.begun = 0
        self.newest: int | None = 0
        self.filled: dict[str, Life] = {}

    def add(self, life: Life) -> None:
        """Add a life."""
        self.filled[life.life] = life  # it may be about to change
        self.lives += 1
        if life.life != SHORT_FORM_LIFE:
            self.begun += _has_begin(life)
            self.note_seq(life, _newest(life))

    def remove(self, life: Life) -> None:
        """Remove a life."""
        self.filled.pop(life.life, None)
        self.lives -= 1
        if life.life != SHORT_FORM_LIFE:
            self.begun -= _has_begin(life)
            if not life.complete and _newest(life) == self.newest:
                self.newest = None

    def note_seq(self, life: Life, seq: int) -> None:
        """Note the seq of a snapshot of a life."""
        if not life.complete and self.newest is not None and seq > self.newest and _has_begin(life):
            self.newest = seq


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
        self.apps.setdefault(life.app, _AppLives()).add(life)

    def remove(self, life: Life) -> None:
        """Remove a life."""
        self.living.pop(life.name, None)
        self.apps[life.app].remove(life)
        if not self.apps[life.app].lives:
            del self.apps[life.app]


def _has_begin(life: Life) -> bool:
    return life.complete or not life.life.startswith(_NO_TIME)


def _newest(life: Life) -> int:
    return max(life.parts.values(), default=0)


class Instances:
    """The lives of `state` by instance. What is asked of all lives of an instance is indexed.

    `number` counts the lives, and `rows` their metrics, to which a caller adds what it adds to a life.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._indexes: dict[str, _InstanceLives] = {}
        self.number = sum(map(len, state.lives.values()))
        self.rows = sum(map(metric_count, self))
        self._living = Counter(life.instance for life in self if life.living)
        self._living_lives = self._living.total()

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
        self.number += 1
        self._count_living(life.instance, life.living)
        self._state.lives.setdefault(life.instance, {})[life.name] = life
        index = self._indexes.get(life.instance)
        if index is not None:
            index.add(life)

    def remove(self, life: Life) -> None:
        """Remove a life."""
        self.number -= 1
        self.rows -= metric_count(life)
        self._count_living(life.instance, -life.living)
        lives = self._state.lives[life.instance]
        del lives[life.name]
        if life.instance in self._indexes:
            self._indexes[life.instance].remove(life)
        if not lives:
            del self._state.lives[life.instance]
            self._indexes.pop(life.instance, None)

    def will_change(self, life: Life) -> None:
        """Note that the rows of a life are about to change."""
        index = self._indexes.get(life.instance)
        if index is not None:
            index.apps[life.app].filled[life.life] = life

    def set_living(self, life: Life, *, living: bool) -> None:
        """Mark a life as living or silent."""
        self._count_living(life.instance, living - life.living)
        life.living = living
        index = self._indexes.get(life.instance)
        if index is None:
            return
        if living:
            index.living[life.name] = life
        else:
            index.living.pop(life.name, None)

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

    def filled(self, instance: str, forget: Forget | None, clock_ms: int) -> list[Life]:
        """Return the lives that a tombstone or a forget record changes at this time, by app and name."""
        index = self._index(instance)
        found: list[Life] = []
        for app in index.apps if forget is None or forget.app is None else index.apps.keys() & {forget.app}:
            filled = index.apps[app].filled
            for name in filled.keys() & {forget.life} if forget is not None and forget.life else list(filled):
                if filled[name].is_empty(clock_ms):
                    del filled[name]
                else:
                    found.append(filled[name])
        return sorted(found, key=operator.attrgetter("name"))

    def note_emptied(self, life: Life) -> None:
        """Note that a tombstone has emptied a life, unless it has parts of another partition."""
        index = self._indexes.get(life.instance)
        if index is not None and life.is_empty():
            index.apps[life.app].filled.pop(life.life, None)

    def is_restart(self, life: Life, seq: int) -> bool:
        """Tell whether a new life is a restart (rule 2): the instance had a life of its app. `seq` is its first one.

        A life of incomplete snapshots has the OTLP streams that began at one time, and a process has several such
        lives. The instance restarted if this life begins after every point of the others. A stream that begins while
        the SDK collects may have a start after the time of its point, which is `seq`: then it begins at that time.
        """
        if life.life == SHORT_FORM_LIFE or life.instance not in self._state.lives:
            return False
        others = self._index(life.instance).apps.get(life.app)
        short_forms = (life.app, SHORT_FORM_LIFE) in self._state.lives[life.instance]
        if others is None or others.lives == short_forms:
            return False
        if life.complete:
            return True
        begin_ns = ulid_ms(life.life) * 1_000_000
        if 0 < begin_ns - seq < MAX_COLLECTION_NS:
            begin_ns = seq
        if others.newest is None:
            same = [one for one in self._state.lives[life.instance].values() if one.app == life.app]
            others.newest = max((_newest(one) for one in same if not one.complete and _has_begin(one)), default=0)
        return others.begun > 0 and begin_ns > others.newest

    def counts(self) -> LifeNumbers:
        """Return how many lives there are, living ones, instances that have one of these, and rows."""
        return LifeNumbers(self.number, self._living_lives, len(self._living), self.rows)

    def _count_living(self, instance: str, more: int) -> None:
        self._living_lives += more
        self._living[instance] += more
        if not self._living[instance]:
            del self._living[instance]

    def _index(self, instance: str) -> _InstanceLives:
        index = self._indexes.get(instance)
        if index is None:
            lives = self._state.lives.get(instance, _NO_LIVES)
            index = _InstanceLives(lives.values())
            if len(lives) > FEW_LIVES:
                self._indexes[instance] = index
        return index
