"""The rates at which records are produced and consumed, and how long a group takes to catch up. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_dashboards.lag.status import OffsetSample


@dataclass(frozen=True, slots=True)
class Rates:
    """Records a second over a period, produced to and consumed from one or more partitions."""

    produced: float
    consumed: float

    @property
    def net(self) -> float:
        """How fast the lag falls, in records a second; negative if it grows."""
        return self.consumed - self.produced


@dataclass(frozen=True, slots=True)
class Drained:
    """The lag is 0."""


@dataclass(frozen=True, slots=True)
class Between:
    """The group catches up in `low_s` to `high_s` seconds; `high_s` None: never, at the slowest recent rate."""

    low_s: float
    high_s: float | None


@dataclass(frozen=True, slots=True)
class Never:
    """The lag does not fall at the recent rates."""


@dataclass(frozen=True, slots=True)
class Steady:
    """The group keeps up, at a lag above 0.

    It consumes as much as is produced (the rates differ by `STEADY` of the produced rate at most), or the lag does not
    fall but is at most `LITTLE_S` seconds of consumption.
    """


@dataclass(frozen=True, slots=True)
class NotKnown:
    """There are too few samples for a rate."""


Drain = Drained | Between | Never | Steady | NotKnown

STEADY = 0.01
LITTLE_S = 5.0
"""The lag of a consumer that keeps up, in seconds of its consumption: the records that it is processing."""
SHORTEST_MS = 1000
"""The shortest period for a rate, in ms."""


def rates(samples: Sequence[OffsetSample]) -> Rates | None:
    """Return the rates from the first sample to the last; None if they are less than a second apart.

    If an end or an offset went back (a recreated topic, a rewind), its rate is 0, not negative.
    """
    if len(samples) < 2 or samples[-1].ts_ms - samples[0].ts_ms < SHORTEST_MS:
        return None
    first, last = samples[0], samples[-1]
    seconds = (last.ts_ms - first.ts_ms) / 1000
    return Rates(max(0, last.end - first.end) / seconds, max(0, last.committed - first.committed) / seconds)


def add(several: Sequence[Rates]) -> Rates:
    """Return the sum of the rates of several partitions."""
    return Rates(sum(one.produced for one in several), sum(one.consumed for one in several))


def drain(lag: int, seen: Sequence[Rates]) -> Drain:
    """Return how long `lag` records take at the recent rates `seen`, from the fastest to the slowest."""
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
