"""When the next round is due: a fixed schedule that skips what it has missed."""

from __future__ import annotations

import math


def next_round(first: float, interval: float, now: float) -> tuple[float, int]:
    """Return when the next round is due and how many were missed since the one that has just ended.

    Rounds are due at `first`, `first` + `interval`, … (seconds of a monotonic clock). A round that takes longer than
    the interval makes the ones it overlaps fall away: they are never made up for in a burst.
    """
    due = first + interval
    if now <= due:
        return due, 0
    missed = math.ceil((now - due) / interval)
    return due + missed * interval, missed
