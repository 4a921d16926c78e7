"""How many lives there are, and when the next of them may fall silent or retire: kept up to date by what changed.

A batch changes a few lives of many, and asks four questions about all of them: who falls silent, who retires, when the
next one will, how many there are. The times are bounds: nobody is due before them. A life that is heard of is due later
than its bound says, so it comes that there is nobody when a bound is reached; then all lives are looked at, and the
bounds are exact again. Lives that report go on being heard of, so that is once in some of their intervals.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream.aggregator.table.layouts import size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tallystream.aggregator.table.state import Life, State


class Census:
    """The numbers of `lives`, `living` ones, `instances` that have one of these, and `rows`, as of the last `settle()`.

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
