"""Lag in seconds: how old the oldest unconsumed record is, told from the history of end offsets. Pure.

The collector writes down when the end of a partition was where. The record at offset `committed` was appended while the
end moved past it, so its age is known as well as the history is dense: between two observations it is interpolated,
assuming an even rate of production between them. Outside the history nothing is guessed: there is a bound, or nothing.

Transaction markers and compaction leave offsets without a record. They count as records here: a group may stand before
them with nothing to read, at a lag of a few "records" whose age is real all the same. `docs/lag.md` says more.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Observation:
    """One look at a partition: at `ts_ms` (epoch ms) its end offset was `end`."""

    ts_ms: int
    end: int


@dataclass(frozen=True, slots=True)
class Zero:
    """Everything is consumed: zero lag is zero seconds."""


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
    """Nobody can tell; `reason` says why, as the end of a sentence."""

    reason: str


SecondsLag = Zero | Exact | AtLeast | Unknown


MAX_GAP_MS = 90_000
"""The slowest collector looks every 60 s. Over a longer gap nobody looked, and interpolation would be a guess."""


def seconds_lag(committed: int | None, history: Sequence[Observation], *, now_ms: int) -> SecondsLag:
    """Return the age of the record at offset `committed`, the next one that the group will read.

    `history` is in order of time and ends with the newest observation. Where the end fell (the topic was truncated or
    made again), only what came after the fall counts. A result is never negative and never older than the history.
    """
    known = _since_last_fall([one for one in history if one.ts_ms <= now_ms])
    return age_in(committed, [one.ts_ms for one in known], [one.end for one in known], now_ms=now_ms)


def age_in(committed: int | None, times_ms: Sequence[int], ends: Sequence[int], *, now_ms: int) -> SecondsLag:
    """Return the same from two columns: at `times_ms[i]` the end was `ends[i]`; neither ever falls."""
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
    """Return when the record at `offset`, which is before the newest end, was appended.

    That is: after the first moment (None: before the history), up to the second; the third says where between them it
    lies if records came evenly, from 0 to 1.
    """
    after = bisect_right(ends, offset)
    if after == 0:
        return None, times_ms[0], 1.0
    # The record at `offset` is the first of the growth from the end before that is not yet read.
    share = (offset - ends[after - 1]) / (ends[after] - ends[after - 1])
    return times_ms[after - 1], times_ms[after], share


def worst(found: Sequence[SecondsLag]) -> SecondsLag:
    """Return the largest of several partitions' lags: a bound counts with what it is at least.

    Unknown ones do not hide a known one, but make the whole at least that; of nothing known nothing is known.
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
    """Return an age `seconds` later, with nothing consumed meanwhile; nothing to do stays nothing to do."""
    match found:
        case Exact(before):
            return Exact(before + seconds)
        case AtLeast(before):
            return AtLeast(before + seconds)
    return found


def at_least(found: SecondsLag) -> float:
    """Return the seconds that are certain: 0 where nothing is."""
    match found:
        case Exact(seconds) | AtLeast(seconds):
            return seconds
        case Zero() | Unknown():
            return 0.0


def _since_last_fall(history: list[Observation]) -> list[Observation]:
    begin = max((i for i in range(1, len(history)) if history[i].end < history[i - 1].end), default=0)
    return history[begin:]
