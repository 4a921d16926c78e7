"""How many instances of each app are living, have ended, and are silent (rule 13), by the lives of the table.

An instance is living while a life of it is. Otherwise the life with the last record decides: a final one, or one that
was removed, has ended.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from tallystream_aggregator.instances import ENDED, INSTANCES, INSTANCES_NAME, LIVING, SILENT, state_of
from tallystream_aggregator.table.arithmetic.partial_sums import PartialSum

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tallystream_aggregator.instances import InstanceState
    from tallystream_aggregator.sums import MetricId
    from tallystream_aggregator.table.state import Life


def last_seen(life: Life) -> tuple[int, str]:
    """Return by what the lives of an instance are ordered: the time of their last record that was applied."""
    return life.last_seen_ms, life.life


def state_by(lives: Collection[Life]) -> InstanceState | None:
    """Return the state of an instance with these lives of an app, None if there are none."""
    if not lives:
        return None
    is_living = any(life.living for life in lives)
    return state_of(is_living=is_living, is_final=max(lives, key=last_seen).final)


class InstanceNumbers:
    """The numbers of instances of each app, kept by differences, and its `living` lives.

    `find` returns the state of an instance in an app. Before a life changes in a way that may change it, or is added or
    removed, a caller says so (`will_change`).
    """

    def __init__(self, find: Callable[[str, str], InstanceState | None]) -> None:
        self._find = find
        self._states: defaultdict[str, Counter[str | None]] = defaultdict(Counter)  # by app
        self.living: Counter[str] = Counter()
        self._before: dict[tuple[str, str], InstanceState | None] = {}
        self._changed: set[str] = set()

    def add(self, app: str, lives: Collection[Life]) -> None:
        """Add an instance that has these lives of an app, as it was published."""
        self._states[app][state_by(lives)] += 1
        self.living[app] += sum(life.living for life in lives)

    def will_change(self, life: Life) -> None:
        """Keep the present state of the instance of a life."""
        key = life.app, life.instance
        if key not in self._before:
            self._before[key] = self._find(*key)

    def count_living(self, app: str, more: int) -> None:
        """Count more living lives of an app, or less."""
        if more:
            self.living[app] += more
            self._changed.add(app)

    def mark_changed(self) -> None:
        """Have the next `flush` return the numbers of all apps."""
        self._changed.update(self._states)

    def flush(self) -> list[tuple[MetricId, PartialSum]]:
        """Return the sums of the apps whose numbers have changed since the last call."""
        for (app, instance), before in self._before.items():
            now = self._find(app, instance)
            if now != before:
                self._states[app][before] -= before is not None
                self._states[app][now] += now is not None
                self._changed.add(app)
        sums: list[tuple[MetricId, PartialSum]] = []
        for app in self._changed:
            partial = self._sum(app)
            sums.append(((app, INSTANCES_NAME, INSTANCES, ()), partial))
            if partial.is_empty:
                self._states.pop(app, None)
                self.living.pop(app, None)
        self._before, self._changed = {}, set()
        return sums

    def _sum(self, app: str) -> PartialSum:
        partial, states = PartialSum(INSTANCES), self._states[app]
        partial.lives, partial.instances = self.living[app], states[LIVING]
        for cell, state in zip(partial.cells, (ENDED, SILENT), strict=True):
            cell.replace(None, states[state] or None)
        return partial
