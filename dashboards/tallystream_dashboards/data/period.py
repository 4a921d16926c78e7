"""A period of time in the store."""

from __future__ import annotations

from typing import NamedTuple

RANGES = {"5m": 300, "15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800}
"""The lengths of a period to choose from, in seconds."""


class Period(NamedTuple):
    """The period that is shown, and the time before which points are read (epoch ms)."""

    start_ms: int
    end_ms: int
    until_ms: int
