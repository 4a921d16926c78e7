"""How long a group takes to catch up at its recent rates. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tallystream_dashboards.formatting import DASH, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_dashboards.lag.samples import Rates

STEADY_SHARE = 0.01
STEADY_LAG_S = 5.0
"""The lag of a consumer that keeps up, in seconds of its consumption: the records that it is processing."""


class CatchUp(NamedTuple):
    """How long a group takes to catch up, as the text that is shown, and in seconds from the fastest to the slowest.

    A time that is not known, or never, is None.
    """

    drain: str = DASH
    drain_low: float | None = None
    drain_high: float | None = None


UNKNOWN = CatchUp()
"""There are too few samples for a rate."""


def time_to_catch_up(lag: int, rates: Sequence[Rates]) -> CatchUp:
    """Return how long `lag` records take at the recent `rates`.

    A group keeps up at a lag above 0 if it consumes as much as is produced (the rates differ by `STEADY_SHARE` of the
    produced rate at most), or if the lag does not fall but is at most `STEADY_LAG_S` seconds of consumption.
    """
    if lag <= 0:
        return CatchUp("now", 0.0, 0.0)
    if not rates:
        return UNKNOWN
    nets = [_net(one) for one in rates]
    fastest, slowest = max(nets), min(nets)
    equal = all(one.produced > 0 and abs(one.net) <= STEADY_SHARE * one.produced for one in rates)
    if equal or (slowest <= 0 and lag <= STEADY_LAG_S * min(one.consumed for one in rates)):
        return CatchUp("keeps up")
    if fastest <= 0:
        return CatchUp("never at this rate")
    low_s, low = lag / fastest, _duration(lag / fastest)
    if slowest <= 0:
        return CatchUp(f"{low} or never", low_s)
    high_s, high = lag / slowest, _duration(lag / slowest)
    return CatchUp(low if low == high else f"{low} to {high}", low_s, high_s)


def _duration(seconds: float) -> str:
    return duration(seconds) if seconds >= 1 else "< 1 s"


def _net(rates: Rates) -> float:
    """Return how fast the lag falls; 0 if it is only the rounding of the sums of floats."""
    return 0.0 if math.isclose(rates.produced, rates.consumed) else rates.net
