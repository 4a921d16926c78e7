"""Which lives are due at a time of their partition: to fall silent, or to be forgotten."""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tallystream_aggregator.table.instances import Instances
    from tallystream_aggregator.table.state import Life

MIN_ADDED = 1_000
"""So many entries of lives that are gone, or are there twice, are left alone."""


class Deadlines:
    """The lives of each partition by the time of its clock at which something is due.

    A life that has become due later, or has left the partition, is noticed when its first time has come.
    """

    def __init__(self, due_ms: Callable[[Life], int], instances: Instances) -> None:
        self._due_ms, self._instances, self._number = due_ms, instances, count()
        self._heaps: dict[str, list[tuple[int, int, Life]]] = {}
        self._added = 0  # since the heaps had each life once

    def add(self, life: Life) -> None:
        """Add a life that is new in its partition, or is due earlier than before."""
        self._push(life)
        self._added += 1
        if self._added > max(2 * self._instances.number, MIN_ADDED):
            entries = [entry for heap in self._heaps.values() for entry in heap]
            lives = {id(life): life for _, _, life in entries if self._instances.has(life)}
            self._heaps, self._added = {}, 0
            for one in lives.values():
                self._push(one)

    def _push(self, life: Life) -> None:
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
