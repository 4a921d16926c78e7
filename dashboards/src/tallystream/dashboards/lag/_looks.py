"""The looks of one group's partition that a verdict needs, in memory: packed, bounded by the window."""

from __future__ import annotations

from array import array

from tallystream.dashboards.lag.verdict import HELD_MS, Look

_WIDTH = 4
_NONE = -1


class Looks:
    """Looks in order of time, without those that say the same as both their neighbours."""

    __slots__ = ("_packed",)

    def __init__(self) -> None:
        self._packed: array[int] = array("q")

    def __len__(self) -> int:
        return len(self._packed) // _WIDTH

    def add(self, look: Look, *, window_ms: int) -> None:
        """Take a look, later than all before, and forget what the window before it does not need."""
        packed = self._packed
        said = (look.committed, look.end, _NONE if look.members is None else look.members)
        held = len(packed) >= 2 * _WIDTH and look.ts_ms - packed[-2 * _WIDTH] <= HELD_MS
        if held and tuple(packed[-3:]) == said == tuple(packed[-_WIDTH - 3 : -_WIDTH]):
            packed[-_WIDTH] = look.ts_ms
            return
        packed.extend((look.ts_ms, *said))
        begin, drop = look.ts_ms - window_ms, 0
        # One look from before the window stays: it says what held when the window began.
        while drop + _WIDTH < len(packed) and packed[drop + _WIDTH] < begin:
            drop += _WIDTH
        del packed[:drop]

    def all(self) -> list[Look]:
        """Return the looks, oldest first."""
        packed = self._packed
        return [
            Look(packed[i], packed[i + 1], packed[i + 2], None if packed[i + 3] == _NONE else packed[i + 3])
            for i in range(0, len(packed), _WIDTH)
        ]
