"""Samples, snapshots and moving averages."""

from __future__ import annotations

from tallystream.pyformance_compat.stats.moving_average import ExpWeightedMovingAvg
from tallystream.pyformance_compat.stats.samples import ExpDecayingSample, SlidingTimeWindowSample
from tallystream.pyformance_compat.stats.snapshot import Snapshot

__all__ = ["ExpDecayingSample", "ExpWeightedMovingAvg", "SlidingTimeWindowSample", "Snapshot"]
