"""Statuses of partitions and groups over a sliding window, with Burrow's names. Pure.

The rules are Burrow's (its wiki page "Consumer Lag Evaluation Rules"), adapted to offsets that are requested from a
broker, which does not say when a group last committed. Therefore a commit is detected when the offset has moved. A
group that makes no progress is STALL if it has members, else STOP. The time without progress begins when there is lag,
so that the first record after an idle period raises no alarm.

A partition is late if its oldest unconsumed record is older than allowed; a group, if one of its partitions is. A late
partition is WARN if its group is WARN or ERR already, or was late in the whole window while the partition's lag did not
fall, or fell so slowly that it takes over an hour.

How often a status changes is not decided here, but in `changes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from tallystream.errors import ConfigError
from tallystream_dashboards.formatting import counted
from tallystream_dashboards.lag.samples import MAX_GAP_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream_dashboards.lag.offsets import PartitionOffsets
    from tallystream_dashboards.lag.samples import OffsetSample
    from tallystream_dashboards.lag.time_lag import TimeLag


class Status(IntEnum):
    """A status; a higher value is worse. A group has no REWIND, STALL or STOP: it is ERR if a partition has one."""

    OK = 0
    NOTFOUND = 1
    WARN = 2
    ERR = 3
    REWIND = 4
    STALL = 5
    STOP = 6


STOPPED = (Status.STALL, Status.STOP)
"""The statuses of a partition without progress."""
CATCH_UP_S = 3600
"""A partition that takes longer to catch up, in seconds, catches up too slowly."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The thresholds of the statuses.

    Args:
        window_s: the length of the sliding window in seconds.
        allowed_lag: a lag of at most this many records counts as no lag.
        stop_after_s: the status is STALL or STOP after more seconds without progress; None: half the window.
        warn_age_s: a partition is late if its oldest unconsumed record is older, in seconds.
        err_age_s: the status is ERR if the oldest unconsumed record is older, in seconds; None: never by its age.

    Raises:
        ConfigError: a number is out of its bounds.
    """

    window_s: float = 120.0
    allowed_lag: int = 0
    stop_after_s: float | None = None
    warn_age_s: float = 30.0
    err_age_s: float | None = None

    @property
    def window_ms(self) -> int:
        """The length of the window in milliseconds."""
        return round(self.window_s * 1000)

    @property
    def max_idle_s(self) -> float:
        """The longest time without progress, in seconds. After it the status is STALL or STOP."""
        return self.window_s / 2 if self.stop_after_s is None else self.stop_after_s

    def __post_init__(self) -> None:
        if not 1 <= self.window_s <= 86_400:
            raise ConfigError("--window", self.window_s, "give seconds from 1 to 86400")
        if self.allowed_lag < 0:
            raise ConfigError("--allowed-lag", self.allowed_lag, "give a number of records, 0 or more")
        if not 0 < self.max_idle_s < self.window_s:
            raise ConfigError("--stop-after", self.max_idle_s, "give seconds above 0 and below those of --window")
        if not self.warn_age_s >= 0:
            raise ConfigError("--warn-age", self.warn_age_s, "give seconds, 0 or more")
        if self.err_age_s is not None and not self.err_age_s > 0:
            raise ConfigError("--err-age", self.err_age_s, "give seconds above 0")

    def is_late(self, waiting: int, time_lag: TimeLag | None) -> bool:
        """Return whether a partition is late in which so many records wait."""
        return waiting > self.allowed_lag and time_lag is not None and time_lag.seconds > self.warn_age_s


class Late(NamedTuple):
    """A partition is late. Since `since_ms` one of its group's partitions was; `group_is_bad`: it was WARN or ERR."""

    since_ms: int
    group_is_bad: bool = False


class Evaluation(NamedTuple):
    """A status and its reason, a sentence. `notable`: the reason is worth showing, also if the status is OK.

    `last_ms`: a status that is held was last given by its rule at that time; None: it is not held. `changed_ms`: when
    the status changed; None: it is the first one.
    """

    status: Status
    reason: str
    notable: bool = False
    last_ms: int | None = None
    changed_ms: int | None = None


CAUGHT_UP = Evaluation(Status.OK, "The lag is 0.")
STALE = "It was not read in the newest round; before: "
"""How the reason of a stale partition begins."""

_OPEN = "A transaction is open from offset {:,} on: consumers with read_committed do not read beyond it."


def evaluate_partition(
    offsets: PartitionOffsets,
    samples: Sequence[OffsetSample],
    time_lag: TimeLag | None,
    *,
    members: int | None,
    now_ms: int,
    rules: Rules,
    late: Late | None = None,
    open_from: int | None = None,
) -> Evaluation:
    """Return the evaluation of a partition by its samples, the last of which is current, and by its time lag.

    `members` is the number of the group's members, `open_from` the offset where an open transaction begins, the last
    stable offset; None: it is not known. `late` is None if the partition is not late.
    """
    if offsets.committed is None:
        return Evaluation(Status.NOTFOUND, "The group has committed nothing here.")
    if offsets.lag is None:
        return _past_end(samples, now_ms=now_ms, rules=rules)
    waiting = offsets.lag - offsets.deleted
    if offsets.deleted and waiting <= rules.allowed_lag:
        evaluation = Evaluation(Status.OK, f"{_waits(waiting, 'other record')}.")
    elif waiting > rules.allowed_lag and offsets.left:
        left = f"{_waits(waiting)}, but no member has this partition: the group may have left the topic."
        evaluation = Evaluation(Status.WARN, left)
    else:
        evaluation = evaluate_samples(samples, members, now_ms=now_ms, rules=rules, deleted=offsets.deleted, late=late)
        if time_lag is not None:
            evaluation = _by_age(evaluation, time_lag.seconds, rules=rules)
    if open_from is not None and open_from < offsets.end and evaluation.status in STOPPED:
        evaluation = evaluation._replace(reason=f"{evaluation.reason} {_OPEN.format(open_from)}")
    if not offsets.deleted:
        return evaluation
    lost = counted(offsets.deleted, "offset")
    were = "was deleted before it was" if offsets.deleted == 1 else "were deleted before they were"
    reason = f"{lost} {were} read. {evaluation.reason}"
    return Evaluation(max(evaluation.status, Status.WARN), reason)


def evaluate_samples(
    samples: Sequence[OffsetSample],
    members: int | None,
    *,
    now_ms: int,
    rules: Rules,
    deleted: int = 0,
    late: Late | None = None,
) -> Evaluation:
    """Return the evaluation of one partition by its samples (in order of time) in the window before `now_ms`.

    Of the lag, `deleted` offsets wait no longer, because they were deleted. `late` is None if it is not late.

    The first rule that applies decides: no samples, NOTFOUND; records that wait without progress for longer than the
    rules' `max_idle_s`, STALL or STOP; an offset that went back, REWIND; late for too long or in a bad group, WARN;
    else OK. If the status is OK after half of `max_idle_s` without progress, the evaluation is notable.
    """
    window = _window(samples, now_ms, rules)
    if not window:
        return Evaluation(Status.NOTFOUND, f"No offsets were read in the last {rules.window_s:g} s.")
    last = window[-1]
    idle_s = (now_ms - _last_progress_ms(window, rules)) / 1000
    if idle_s > rules.max_idle_s:
        return _without_progress(last.lag - deleted, members, idle_s, rules)
    if last.lag > rules.allowed_lag and last.committed < window[-2:][0].committed:
        went_back = f"The committed offset went back from {window[-2].committed:,} to {last.committed:,}."
        return Evaluation(Status.REWIND, went_back)
    if idle_s >= rules.max_idle_s / 2:  # it moves soon, or is stopped soon: a WARN before that would delay it
        waiting = f"{_waits(last.lag - deleted)}, and the committed offset has not moved for {idle_s:.0f} s"
        return Evaluation(Status.OK, f"{waiting}; from {rules.max_idle_s:.0f} s on it counts as stopped.", notable=True)
    return _by_lateness(window, now_ms, rules, late)


def _past_end(samples: Sequence[OffsetSample], *, now_ms: int, rules: Rules) -> Evaluation:
    """Return the evaluation of a partition whose committed offset is past the end now.

    A consumer that works commits a valid offset soon. If it does not within the rules' `max_idle_s`, the status is
    WARN, else NOTFOUND.
    """
    window = _window(samples, now_ms, rules)
    moved = [b.ts_ms for a, b in pairwise(window) if b.committed != a.committed or a.committed <= a.end]
    idle_s = (now_ms - max([window[0].ts_ms, *moved] if window else [now_ms])) / 1000
    what = "The committed offset is past the end, as after the topic was recreated"
    if idle_s > rules.max_idle_s:
        return Evaluation(Status.WARN, f"{what}, and has not moved for {idle_s:.0f} s.")
    return Evaluation(Status.NOTFOUND, f"{what}.")


def _by_lateness(window: Sequence[OffsetSample], now_ms: int, rules: Rules, late: Late | None) -> Evaluation:
    first, last = window[0], window[-1]
    if late is None:
        return Evaluation(Status.OK, f"The lag is {last.lag:,}.")
    seconds = (now_ms - first.ts_ms) / 1000
    too_slow = (first.lag - last.lag) * CATCH_UP_S < last.lag * seconds
    warn = late.group_is_bad or (too_slow and now_ms - late.since_ms >= rules.window_ms)
    change = f"in {seconds:.0f} s the lag went from {first.lag:,} to {last.lag:,}"
    return Evaluation(Status.WARN if warn else Status.OK, f"It is over {rules.warn_age_s:g} s behind; {change}.")


def _by_age(evaluation: Evaluation, seconds: float, *, rules: Rules) -> Evaluation:
    """Return the evaluation, or a worse one if the oldest unconsumed record, `seconds` old, is older than allowed."""
    limit_s = rules.err_age_s
    if limit_s is None or seconds <= limit_s or evaluation.status > Status.ERR:
        return evaluation
    return Evaluation(Status.ERR, f"The oldest unconsumed record is {seconds:.0f} s old, over {limit_s:g} s.")


def evaluate_group(partitions: Sequence[tuple[str, Evaluation]]) -> Evaluation:
    """Return the evaluation of a group by its partitions (name, evaluation). The reason names the worst one.

    The group is ERR if a partition is REWIND or worse. NOTFOUND partitions count only if all are NOTFOUND.
    """
    known = [one for one in partitions if one[1].status is not Status.NOTFOUND]
    if not known:
        return Evaluation(Status.NOTFOUND, partitions[0][1].reason if partitions else "The group has no partitions.")
    name, worst = max(known, key=lambda one: (one[1].status, one[1].notable))
    if worst.status is Status.OK:
        if len(known) == 1:
            return worst
        if worst.notable:
            return Evaluation(Status.OK, f"{name}: {worst.reason}", notable=True)
        return Evaluation(Status.OK, f"All {len(known):,} partitions are OK. {name}: {worst.reason}")
    bad = sum(one.status is not Status.OK for _, one in known)
    share = f" ({bad:,} of {len(known):,} partitions)" if len(known) > 1 else ""
    return Evaluation(min(worst.status, Status.ERR), f"{worst.status.name} in {name}{share}: {worst.reason}")


def _window(samples: Sequence[OffsetSample], now_ms: int, rules: Rules) -> list[OffsetSample]:
    """Return the samples in the window, and before them the last older one.

    That one was valid when the window began if the next one is equal, since those between are not kept, or at most
    `MAX_GAP_MS` later. If not, and it has no lag, it does not tell when records began to wait, so it is left out.
    """
    begin_ms = now_ms - rules.window_ms
    inside = [sample for sample in samples if begin_ms < sample.ts_ms <= now_ms]
    before = next((sample for sample in reversed(samples) if sample.ts_ms <= begin_ms), None)
    if before is None or not inside:
        return inside
    valid = before[1:] == inside[0][1:] or inside[0].ts_ms - before.ts_ms <= MAX_GAP_MS
    if valid:
        return [before._replace(ts_ms=begin_ms), *inside]
    return [before, *inside] if before.lag > rules.allowed_lag else inside


def _last_progress_ms(window: Sequence[OffsetSample], rules: Rules) -> int:
    moved = [b.ts_ms for a, b in pairwise(window) if b.committed != a.committed]
    caught_up = [sample.ts_ms for sample in window if sample.lag <= rules.allowed_lag]
    return max([window[0].ts_ms, *moved, *caught_up])


def _without_progress(lag: int, members: int | None, idle_s: float, rules: Rules) -> Evaluation:
    more = " or more" if idle_s >= rules.window_s else ""
    waiting = f"{_waits(lag)}, and the committed offset has not moved for {idle_s:.0f} s{more}"
    if members:
        return Evaluation(Status.STALL, f"{waiting}, although the group has {counted(members, 'member')}.")
    return Evaluation(Status.STOP, f"{waiting}; the group has no members." if members == 0 else f"{waiting}.")


def _waits(records: int, noun: str = "record") -> str:
    return counted(records, noun, "waits", "wait")
