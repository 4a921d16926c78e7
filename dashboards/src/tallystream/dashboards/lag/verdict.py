"""Verdicts on a sliding window, in the words that operators know from Burrow. Pure.

The rules are Burrow's (its wiki page "Consumer Lag Evaluation Rules"), adapted to offsets that are looked up rather
than read as commits: a broker tells where a group is, not when it last committed. So a commit is seen when the offset
has moved; whether a group that does not move still has members tells STALL from STOP; and the time without progress
counts from when there was something to do, so that the first record after a quiet night raises no alarm.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOTS = 10
"""Burrow looks at ten commits: so does this, at the lowest lag of each tenth of the window."""


class Verdict(IntEnum):
    """Worse is higher. A partition is STOP, STALL or REWIND where its group is ERR."""

    OK = 0
    NOTFOUND = 1
    WARN = 2
    REWIND = 3
    STALL = 4
    STOP = 5
    ERR = 6


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a group's partition: the next offset it will read, the partition's end, the group's members.

    `members` is None where it was not recorded.
    """

    ts_ms: int
    committed: int
    end: int
    members: int | None = None

    @property
    def lag(self) -> int:
        """Records to go, 0 or more."""
        return max(0, self.end - self.committed)


@dataclass(frozen=True, slots=True)
class Rules:
    """How strict to be: the window in seconds, and the lag in records that counts as none."""

    window_s: float = 120.0
    allowed_lag: int = 0


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict and its reason, a sentence."""

    verdict: Verdict
    reason: str


def judge(looks: Sequence[Look], *, now_ms: int, rules: Rules) -> Judgement:  # noqa: PLR0911 - a return a rule
    """Judge one partition by the looks (in order of time) that lie in the window before `now_ms`.

    In this order: nothing seen, NOTFOUND; no lag now, OK; no progress for more than half the window, STALL or STOP; no
    lag at some moment of the window, OK; an offset that went back, REWIND; lag that never fell, WARN; else OK. Before
    half a window has been watched the verdict is OK, and the reason says that it is early.
    """
    window = [look for look in looks if now_ms - rules.window_s * 1000 <= look.ts_ms <= now_ms]
    if not window:
        return Judgement(Verdict.NOTFOUND, f"Nothing was seen in the last {rules.window_s:g} s.")
    last, half_s = window[-1], rules.window_s / 2
    if last.lag <= rules.allowed_lag:
        return Judgement(Verdict.OK, f"The lag is {last.lag:,}.")
    quiet_s = (now_ms - _last_progress_ms(window, rules)) / 1000
    if quiet_s > half_s:
        return _without_progress(last, quiet_s)
    if any(look.lag <= rules.allowed_lag for look in window):
        return Judgement(Verdict.OK, f"It caught up within the last {rules.window_s:g} s; the lag is {last.lag:,} now.")
    back = next(((a, b) for a, b in pairwise(window) if b.committed < a.committed), None)
    if back is not None:
        was, now = back[0].committed, back[1].committed
        return Judgement(Verdict.REWIND, f"The committed offset went back from {was:,} to {now:,}.")
    watched_s = (last.ts_ms - window[0].ts_ms) / 1000
    if watched_s < half_s:
        return Judgement(Verdict.OK, f"The lag is {last.lag:,}; {watched_s:.0f} s of watching are too few to say more.")
    lows = _lows(window, rules, now_ms)
    if all(b >= a for a, b in pairwise(lows)):
        return Judgement(
            Verdict.WARN,
            f"It makes progress, but in {watched_s:.0f} s the lag never fell: from {lows[0]:,} to {lows[-1]:,}.",
        )
    return Judgement(Verdict.OK, f"It makes progress and the lag falls at times; it is {last.lag:,}.")


def judge_group(partitions: Sequence[tuple[str, Judgement]]) -> Judgement:
    """Judge a group by its partitions (name, judgement): the worst decides, and the reason names it.

    STOP, STALL and REWIND of a partition make the group ERR. Partitions that are NOTFOUND count only if all are.
    """
    known = [one for one in partitions if one[1].verdict is not Verdict.NOTFOUND]
    if not known:
        return Judgement(Verdict.NOTFOUND, partitions[0][1].reason if partitions else "The group has no partitions.")
    name, found = max(known, key=lambda one: one[1].verdict)
    if found.verdict is Verdict.OK:
        return Judgement(Verdict.OK, found.reason if len(known) == 1 else f"All {len(known):,} partitions are well.")
    bad = sum(one.verdict is not Verdict.OK for _, one in known)
    verdict = Verdict.WARN if found.verdict is Verdict.WARN else Verdict.ERR
    return Judgement(verdict, f"{found.verdict.name} in {name} ({bad:,} of {len(known):,} partitions): {found.reason}")


def _last_progress_ms(window: Sequence[Look], rules: Rules) -> int:
    moved = [b.ts_ms for a, b in pairwise(window) if b.committed != a.committed]
    idle = [look.ts_ms for look in window if look.lag <= rules.allowed_lag]
    return max([window[0].ts_ms, *moved, *idle])


def _without_progress(last: Look, quiet_s: float) -> Judgement:
    waiting = f"{last.lag:,} records wait, and no commit has moved for {quiet_s:.0f} s"
    if last.members:
        members = "1 member is" if last.members == 1 else f"{last.members:,} members are"
        return Judgement(Verdict.STALL, f"{waiting}, although {members} there.")
    return Judgement(Verdict.STOP, f"{waiting}; no member is there." if last.members == 0 else f"{waiting}.")


def _lows(window: Sequence[Look], rules: Rules, now_ms: int) -> list[int]:
    """Return the lowest lag of each tenth of the window: just after its commits, which is where Burrow looks."""
    slot_ms = rules.window_s * 1000 / SLOTS
    lows: dict[int, int] = {}
    for look in window:
        slot = -int((now_ms - look.ts_ms) // slot_ms)
        lows[slot] = min(look.lag, lows.get(slot, look.lag))
    return [lows[slot] for slot in sorted(lows)]
