"""How fast records come and go, and when the group is through at that rate. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_dashboards.lag.status import OffsetSample


@dataclass(frozen=True, slots=True)
class Rates:
    """Records a second over a period: produced to, and consumed from, a partition or several."""

    produced: float
    consumed: float

    @property
    def net(self) -> float:
        """How fast the lag falls, records a second; negative where it grows."""
        return self.consumed - self.produced


@dataclass(frozen=True, slots=True)
class Drained:
    """There is nothing to do."""


@dataclass(frozen=True, slots=True)
class Between:
    """Through in `low_s` to `high_s` seconds; `high_s` None: at the slowest rate seen lately, never."""

    low_s: float
    high_s: float | None


@dataclass(frozen=True, slots=True)
class Never:
    """At today's rates the lag does not fall."""


@dataclass(frozen=True, slots=True)
class Steady:
    """It keeps up, and always has a little to do.

    As much is consumed as is produced, within `STEADY` of it; or the lag is no more than `LITTLE_S` of consumption.
    """


@dataclass(frozen=True, slots=True)
class NotKnown:
    """Too little has been seen for a rate."""


Drain = Drained | Between | Never | Steady | NotKnown

STEADY = 0.01
LITTLE_S = 5.0
"""A lag that is consumed in so many seconds is what a consumer has in hand."""
SHORTEST_MS = 1000
"""Over less than this there is no rate."""


def rates(samples: Sequence[OffsetSample]) -> Rates | None:
    """Return the rates from the first look to the last; None where they are less than a second apart.

    An end or an offset that went back (a topic made again, a rewind) makes no negative rate: it counts as 0.
    """
    if len(samples) < 2 or samples[-1].ts_ms - samples[0].ts_ms < SHORTEST_MS:
        return None
    first, last = samples[0], samples[-1]
    seconds = (last.ts_ms - first.ts_ms) / 1000
    return Rates(max(0, last.end - first.end) / seconds, max(0, last.committed - first.committed) / seconds)


def add(several: Sequence[Rates]) -> Rates:
    """Return the rates of several partitions together."""
    return Rates(sum(one.produced for one in several), sum(one.consumed for one in several))


def drain(lag: int, seen: Sequence[Rates]) -> Drain:
    """Return how long `lag` records take at the rates `seen` lately: the fastest and the slowest bound the answer."""
    if lag <= 0:
        return Drained()
    if not seen:
        return NotKnown()
    best, worst = max(one.net for one in seen), min(one.net for one in seen)
    even = all(one.produced > 0 and abs(one.net) <= STEADY * one.produced for one in seen)
    if even or (worst <= 0 and lag <= LITTLE_S * min(one.consumed for one in seen)):
        return Steady()
    if best <= 0:
        return Never()
    return Between(lag / best, lag / worst if worst > 0 else None)
