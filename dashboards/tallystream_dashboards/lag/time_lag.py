"""Lag in seconds: the age of the oldest unconsumed record, computed from the history of end offsets. Pure.

The collector records the end of each partition over time. The record at offset `committed` was appended when the end
moved past it. Its time between two observations is interpolated at a constant rate of production. For a record that is
older than the history, the result is a lower bound.

Transaction markers and compaction leave offsets without a record, which count as records here. So a group with nothing
to read may have a lag of a few "records", and an age. See `docs/lag.md`.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Observation:
    """The end offset of a partition at `ts_ms` (epoch ms)."""

    ts_ms: int
    end: int


@dataclass(frozen=True, slots=True)
class Zero:
    """Everything is consumed: the lag is 0 seconds."""


@dataclass(frozen=True, slots=True)
class Exact:
    """The oldest unconsumed record is `seconds` old, interpolated between two observations."""

    seconds: float


@dataclass(frozen=True, slots=True)
class AtLeast:
    """The oldest unconsumed record is older than the history: its age is `seconds` or more."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Unknown:
    """The age is not known; `reason` says why, as the end of a sentence."""

    reason: str


SecondsLag = Zero | Exact | AtLeast | Unknown


MAX_GAP_MS = 90_000
"""The longest gap for interpolation, in ms. The longest interval of the collector is 60 s."""


def seconds_lag(committed: int | None, history: Sequence[Observation], *, now_ms: int) -> SecondsLag:
    """Return the age of the record at offset `committed`, the next one that the group will read.

    `history` is in order of time and ends with the newest observation. If the end fell (the topic was truncated or
    recreated), only the history after the fall counts. The result is never negative and never older than the history.
    """
    known = _since_last_fall([one for one in history if one.ts_ms <= now_ms])
    return age_in(committed, [one.ts_ms for one in known], [one.end for one in known], now_ms=now_ms)


def age_in(committed: int | None, times_ms: Sequence[int], ends: Sequence[int], *, now_ms: int) -> SecondsLag:
    """Return the same as `seconds_lag` from two columns: the end at `times_ms[i]` was `ends[i]`; neither ever falls."""
    if committed is None:
        return Unknown("the group has committed nothing")
    if not ends:
        return Unknown("the end of the partition has not been observed")
    if committed > ends[-1]:
        return Unknown("the committed offset is past the end: the topic was truncated or recreated")
    if committed == ends[-1]:
        return Zero()
    earliest_ms, latest_ms, share = appended(committed, times_ms, ends)
    if earliest_ms is None or latest_ms - earliest_ms > MAX_GAP_MS:
        return AtLeast((now_ms - latest_ms) / 1000)
    return Exact((now_ms - earliest_ms - share * (latest_ms - earliest_ms)) / 1000)


def appended(offset: int, times_ms: Sequence[int], ends: Sequence[int]) -> tuple[int | None, int, float]:
    """Return when the record at `offset`, which must be before the newest end, was appended.

    It was appended after the first moment (None: before the history) and up to the second. The third value, from 0 to
    1, is its position between the two at a constant rate of production.
    """
    after = bisect_right(ends, offset)
    if after == 0:
        return None, times_ms[0], 1.0
    # `offset` is in the growth of the end between the two observations.
    share = (offset - ends[after - 1]) / (ends[after] - ends[after - 1])
    return times_ms[after - 1], times_ms[after], share


def worst(found: Sequence[SecondsLag]) -> SecondsLag:
    """Return the largest of several partitions' lags. It is a lower bound if one of them is a bound or unknown.

    It is unknown if all are unknown, or if some are unknown and the others are 0.
    """
    known = [one for one in found if not isinstance(one, Unknown)]
    if not known:
        return found[0] if found else Unknown("there are no partitions")
    seconds = max(at_least(one) for one in known)
    bound = any(isinstance(one, AtLeast) for one in known)
    if bound or len(known) < len(found):
        certain = bound or seconds > 0
        return AtLeast(seconds) if certain else next(one for one in found if isinstance(one, Unknown))
    return Exact(seconds) if seconds > 0 else Zero()


def older(found: SecondsLag, seconds: float) -> SecondsLag:
    """Return an age `seconds` later if nothing is consumed meanwhile. Zero and unknown ages stay the same."""
    match found:
        case Exact(before):
            return Exact(before + seconds)
        case AtLeast(before):
            return AtLeast(before + seconds)
    return found


def at_least(found: SecondsLag) -> float:
    """Return the age or its lower bound in seconds; 0 if it is not known."""
    match found:
        case Exact(seconds) | AtLeast(seconds):
            return seconds
        case Zero() | Unknown():
            return 0.0


def _since_last_fall(history: list[Observation]) -> list[Observation]:
    begin = max((i for i in range(1, len(history)) if history[i].end < history[i - 1].end), default=0)
    return history[begin:]
