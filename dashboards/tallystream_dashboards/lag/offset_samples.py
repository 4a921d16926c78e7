"""The looks of one group's partition that a verdict needs, in memory: packed, bounded by the window."""

from __future__ import annotations

from array import array

from tallystream_dashboards.lag.catch_up import SHORTEST_MS, Rates
from tallystream_dashboards.lag.status import HELD_MS, Look

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
        numbers = iter(self._packed)
        return [
            Look(ts_ms, committed, end, None if members == _NONE else members)
            for ts_ms, committed, end, members in zip(numbers, numbers, numbers, numbers, strict=True)
        ]

    def rates(self, begin_ms: int) -> Rates | None:
        """Return the rates since `begin_ms`: what `drain.rates` says of these looks, without unpacking them."""
        packed, size = self._packed, len(self._packed)
        at = 0
        while at < size and packed[at] < begin_ms:
            at += _WIDTH
        since_ms = packed[at] if at < size else begin_ms
        if 0 < at < size and packed[at] - packed[at - _WIDTH] <= HELD_MS:
            at, since_ms = at - _WIDTH, begin_ms
        if size - at < 2 * _WIDTH or packed[-_WIDTH] - since_ms < SHORTEST_MS:
            return None
        seconds = (packed[-_WIDTH] - since_ms) / 1000
        committed, end = packed[-_WIDTH + 1] - packed[at + 1], packed[-_WIDTH + 2] - packed[at + 2]
        return Rates(max(0, end) / seconds, max(0, committed) / seconds)
