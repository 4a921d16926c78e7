"""How long a group takes to catch up at its recent rates. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from tallystream_dashboards.formatting import DASH, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_dashboards.lag.samples import Rates


class CatchUp(NamedTuple):
    """How long a group takes to catch up, as the text that is shown, and in seconds from the fastest to the slowest.

    A time that is not known, or never, is None.
    """

    drain: str = DASH
    drain_low: float | None = None
    drain_high: float | None = None


UNKNOWN = CatchUp()
"""There are too few samples for a rate, or to say that the group never catches up."""
NOW = CatchUp("now", 0.0, 0.0)


class Backlog(NamedTuple):
    """The lag of a partition that is late, and its rates over the window and over the newer half of it."""

    lag: int
    rates: tuple[Rates | None, Rates | None]


def time_to_catch_up(backlogs: Sequence[Backlog], *, ok: bool) -> CatchUp:
    """Return how long the slowest partition takes to catch up. A group without backlogs has caught up.

    A group that is `ok` has not been observed for long enough to say that it never catches up.
    """
    if not backlogs:
        return NOW
    low_s = high_s = 0.0
    for lag, rates in backlogs:
        seconds = [lag / net if (net := _net(one)) > 0 else math.inf for one in rates if one is not None]
        if len(seconds) < len(rates):
            return UNKNOWN
        low_s, high_s = max(low_s, min(seconds)), max(high_s, *seconds)
    if low_s == math.inf:
        return UNKNOWN if ok else CatchUp("never at this rate")
    low = _duration(low_s)
    if high_s == math.inf:
        return CatchUp(f"≥ {low}", low_s)
    high = _duration(high_s)
    return CatchUp(low if low == high else f"{low} to {high}", low_s, high_s)


def _duration(seconds: float) -> str:
    return duration(seconds) if seconds >= 1 else "< 1 s"


def _net(rates: Rates) -> float:
    """Return how fast the lag falls; 0 if it is only the rounding of the sums of floats."""
    return 0.0 if math.isclose(rates.produced, rates.consumed) else rates.net
