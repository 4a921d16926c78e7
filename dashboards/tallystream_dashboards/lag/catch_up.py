"""How long a group takes to catch up at its recent rates. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tallystream_dashboards.formatting import DASH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_dashboards.lag.samples import Rates

STEADY_SHARE = 0.01
STEADY_LAG_S = 5.0
"""The lag of a consumer that keeps up, in seconds of its consumption: the records that it is processing."""


@dataclass(frozen=True, slots=True)
class Between:
    """The group catches up in `low_s` to `high_s` seconds; `high_s` None: never, at the slowest recent rate."""

    low_s: float
    high_s: float | None


class CatchUp(StrEnum):
    """What is shown if there is no time in which the group catches up.

    A group that is STEADY keeps up, at a lag above 0: it consumes as much as is produced (the rates differ by
    `STEADY_SHARE` of the produced rate at most), or the lag does not fall but is at most `STEADY_LAG_S` seconds of
    consumption. UNKNOWN means that there are too few samples for a rate.
    """

    NOW = "now"
    STEADY = "keeps up"
    NEVER = "never at this rate"
    UNKNOWN = DASH


TimeToCatchUp = Between | CatchUp


def time_to_catch_up(lag: int, rates: Sequence[Rates]) -> TimeToCatchUp:
    """Return how long `lag` records take at the recent `rates`, from the fastest to the slowest."""
    if lag <= 0:
        return CatchUp.NOW
    if not rates:
        return CatchUp.UNKNOWN
    nets = [_net(one) for one in rates]
    fastest, slowest = max(nets), min(nets)
    equal = all(one.produced > 0 and abs(one.net) <= STEADY_SHARE * one.produced for one in rates)
    if equal or (slowest <= 0 and lag <= STEADY_LAG_S * min(one.consumed for one in rates)):
        return CatchUp.STEADY
    if fastest <= 0:
        return CatchUp.NEVER
    return Between(lag / fastest, lag / slowest if slowest > 0 else None)


def _net(rates: Rates) -> float:
    """Return how fast the lag falls; 0 if it is only the rounding of the sums of floats."""
    return 0.0 if math.isclose(rates.produced, rates.consumed) else rates.net
