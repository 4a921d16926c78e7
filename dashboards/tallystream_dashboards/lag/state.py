"""The state of a partition and of a group at one moment. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tallystream_dashboards.formatting import counted, number
from tallystream_dashboards.lag.catch_up import UNKNOWN, Backlog, CatchUp, time_to_catch_up
from tallystream_dashboards.lag.changes import changed_ms, limit
from tallystream_dashboards.lag.samples import Rates, total
from tallystream_dashboards.lag.status import STALE, Evaluation, Status, evaluate_group
from tallystream_dashboards.lag.time_lag import TimeLag, worst

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream_dashboards.lag.status import Rules

GONE_MS = 7 * 86_400_000
"""How long a group that is gone is shown, in ms."""
MAX_NAMED = 3
"""How many partitions a sentence names; the others are counted."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of one partition of a group. `lag` and `time_lag` are None if they are not known.

    `rates` is None if there are too few samples. A `stale` partition was not read in the newest round; it has
    its last known state. `waiting` is shown as soon as the status may change.
    """

    topic: str
    partition: int
    evaluation: Evaluation
    lag: int | None = None
    time_lag: TimeLag | None = None
    rates: Rates | None = None
    start: int | None = None
    end: int | None = None
    committed: int | None = None
    stale: bool = False
    waiting: Evaluation | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The topic and the partition, as in `orders/3`."""
        return f"{self.topic}/{self.partition}"


@dataclass(frozen=True, slots=True)
class GroupState:
    """The state of one group: the sum of the known lags, the largest time lag, when it has caught up, and the status.

    The lag of `unknown_partitions` is not known, usually because nothing was committed there. They have up to
    `uncommitted_records`, so the group's lag is from `lag` to `lag` + `uncommitted_records`. The group has had its
    status since `since_ms`. A group that is `gone` is no longer on the broker. It has its last known state, without
    time lag and partitions. It is `stale` if the newest round did not read it or some of its partitions, which
    have their last known state; the reason says so. A group without `partitions` was read from the store. In every
    round since `late_since_ms` one of its partitions was late.
    """

    group: str
    evaluation: Evaluation
    seen_ms: int
    lag: int | None = None
    time_lag: TimeLag | None = None
    rates: Rates | None = None
    catch_up: CatchUp = UNKNOWN
    partitions: tuple[PartitionState, ...] = ()
    max_lag: int | None = None
    partition_count: int = 0
    unknown_partitions: int = 0
    uncommitted_records: int = 0
    members: int | None = None
    broker_state: str = ""
    since_ms: int | None = None
    late_since_ms: int | None = None
    gone: bool = False
    stale: bool = False

    @property
    def status_name(self) -> str:
        """The name of the status that is shown: GONE for a group that is no longer on the broker."""
        return "GONE" if self.gone else self.evaluation.status.name

    @property
    def lag_text(self) -> str:
        """The lag as text: `1,234`, or `≥ 1,234` if partitions without a known lag have records."""
        return f"≥ {self.lag:,}" if self.lag is not None and self.uncommitted_records else number(self.lag)


def worst_first(states: Iterable[GroupState]) -> list[GroupState]:
    """Return the groups sorted by status (worst first), then by lag (highest first), then by name."""
    return sorted(states, key=lambda one: (-one.evaluation.status, -(one.lag or 0), one.group))


def worst_partitions_first(states: Iterable[PartitionState]) -> list[PartitionState]:
    """Return the partitions sorted by status (worst first), then by lag (highest first), then by name."""
    return sorted(states, key=lambda one: (-one.evaluation.status, -(one.lag or 0), one.topic, one.partition))


def group_state(
    group: str,
    partitions: Iterable[PartitionState],
    backlogs: Sequence[Backlog],
    *,
    seen_ms: int,
    members: int | None = None,
    broker_state: str = "",
    late_since_ms: int | None = None,
) -> GroupState:
    """Return a group's state. `backlogs` are those of the partitions that are late."""
    states = worst_partitions_first(partitions)
    lags = [state.lag for state in states if state.lag is not None]
    lag = sum(lags) if lags else None
    rates = [one.rates for one in states if one.rates is not None]
    evaluation = evaluate_group([(state.name, state.evaluation) for state in states])
    stale, unknown = [one for one in states if one.stale], [one for one in states if one.lag is None]
    state = GroupState(
        group=group,
        lag=lag,
        # A partition without a lag has no time lag; it does not make the time lag of the group unknown.
        time_lag=worst([one.time_lag for one in states if one.lag is not None]),
        rates=total(rates) if rates else None,
        catch_up=UNKNOWN if lag is None or stale else time_to_catch_up(backlogs, ok=evaluation.status is Status.OK),
        evaluation=evaluation,
        partitions=tuple(states),
        seen_ms=seen_ms,
        max_lag=max(lags, default=None),
        partition_count=len(states),
        unknown_partitions=sum(not one.stale for one in unknown),
        uncommitted_records=sum((one.end or 0) - (one.start or 0) for one in unknown),
        members=members,
        broker_state=broker_state,
        late_since_ms=late_since_ms,
        stale=bool(stale),
    )
    reasons = [evaluation.reason]
    waits = [one for one in states if one.waiting is not None and _is_worse(one.waiting, evaluation)]
    if waits and (first := waits[0]).evaluation.reason not in evaluation.reason:
        reasons.append(f"{first.name}: {first.evaluation.reason}")
    if stale:
        reasons.append(_not_read([one.name for one in stale]))
    if state.unknown_partitions and lag is not None:
        reasons.append(
            f"Nothing valid is committed in {state.unknown_partitions:,} of {state.partition_count:,} partitions, "
            f"with {counted(state.uncommitted_records, 'record')}."
        )
    return replace(state, evaluation=state.evaluation._replace(reason=" ".join(reasons)))


def limited(
    states: Sequence[PartitionState], before: GroupState | None, *, now_ms: int, rules: Rules
) -> list[PartitionState]:
    """Return a group's partitions with the statuses that they may have now, after those of the round before."""
    if before is None or before.gone:
        return list(states)
    found = {(one.topic, one.partition): one.evaluation for one in states}
    last = {(one.topic, one.partition): one.evaluation for one in before.partitions}
    shown = limit(found, last, before.evaluation, now_ms=now_ms, rules=rules)
    return [
        one if now is one.evaluation else replace(one, evaluation=now, waiting=_waiting(one.evaluation, now))
        for one, now in zip(states, shown.values(), strict=True)
    ]


def _is_worse(waiting: Evaluation, group: Evaluation) -> bool:
    return min(waiting.status, Status.ERR) > max(group.status, Status.NOTFOUND)


def _waiting(found: Evaluation, shown: Evaluation) -> Evaluation | None:
    return None if found.status is shown.status else found


def keep_since(state: GroupState, before: GroupState | None, at_ms: int) -> GroupState:
    """Return the state of `at_ms` with when its status began and changed; a group that is gone has no status before."""
    last = None if before is None or before.gone else before.evaluation
    same = before is not None and last is not None and last.status is state.evaluation.status
    return replace(
        state,
        since_ms=before.since_ms if same and before is not None else at_ms,
        evaluation=state.evaluation._replace(changed_ms=changed_ms(state.evaluation.status, last, at_ms)),
    )


def mark_gone(state: GroupState) -> GroupState:
    """Return a group's last state, marked as gone: the group is no longer on the broker, so no record waits for it."""
    lag = "its lag was not known" if state.lag is None else f"its lag was {state.lag:,}"
    evaluation = Evaluation(Status.NOTFOUND, f"The group is no longer on the broker; when it was last seen {lag}.")
    return replace(
        state, evaluation=evaluation, gone=True, time_lag=None, catch_up=UNKNOWN, rates=None, stale=False, partitions=()
    )


def stale_partition(last: PartitionState) -> PartitionState:
    """Return what a partition that the newest round did not read would show: what waited in its last state."""
    found = last.waiting or last.evaluation
    reason = found.reason if last.stale else STALE + found.reason
    return replace(last, evaluation=found._replace(reason=reason), waiting=None, rates=None, stale=True)


def unread_partition(topic: str, partition: int) -> PartitionState:
    """Return the state of a partition that no round has read yet."""
    evaluation = Evaluation(Status.NOTFOUND, "It has not been read yet.")
    return PartitionState(topic, partition, evaluation, stale=True)


def _not_read(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    shown = ", ".join(names[:MAX_NAMED])
    return f"Partitions that were not read in the newest round, with their last state: {shown}{more}."
