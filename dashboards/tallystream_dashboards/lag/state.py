"""The state of a partition and of a group at one moment. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tallystream_dashboards.lag.catch_up import CatchUp, TimeToCatchUp, time_to_catch_up
from tallystream_dashboards.lag.samples import OffsetSample, Rates, total
from tallystream_dashboards.lag.status import (
    Evaluation,
    Rules,
    Status,
    evaluate_age,
    evaluate_group,
    evaluate_past_end,
    evaluate_samples,
)
from tallystream_dashboards.lag.time_lag import TimeLag, worst

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream_dashboards.lag.offsets import PartitionOffsets

NOT_READ = "The group was not read in the newest round: this is its last state."
GONE_MS = 7 * 86_400_000
"""How long a group that is gone is shown, in ms."""
MAX_NAMED = 3
"""How many partitions a sentence names; the others are counted."""

CAUGHT_UP = Evaluation(Status.OK, "The lag is 0.")

_LEFT = "{:,} records wait, but no member has this partition: the group may have left the topic."
_OPEN = "A transaction is open from offset {:,} on: consumers with read_committed do not read beyond it."


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of one partition of a group. `lag` and `time_lag` are None if they are not known.

    `rates` is None if there are too few samples. A `stale` partition was not read in the newest round; it has
    its last known state.
    """

    topic: str
    partition: int
    lag: int | None
    time_lag: TimeLag | None
    rates: Rates | None
    evaluation: Evaluation
    start: int | None = None
    end: int | None = None
    committed: int | None = None
    stale: bool = False

    @property
    def name(self) -> str:
        """The topic and the partition, as in `orders/3`."""
        return f"{self.topic}/{self.partition}"

    @property
    def records(self) -> int:
        """The number of records in the partition, 0 if it is not known."""
        return 0 if self.start is None or self.end is None else self.end - self.start


@dataclass(frozen=True, slots=True)
class GroupState:
    """The state of one group: the sum of the known lags, the largest time lag, when it has caught up, and the status.

    The lag of `unknown_partitions` is not known, usually because nothing was committed there. They have up to
    `uncommitted_records`, so the group's lag is from `lag` to `lag` + `uncommitted_records`. The group has had its
    status since `since_ms`. A group that is `gone` is no longer on the broker. It has its last known state, without a
    time lag. `stale` is a sentence if the newest round did not read the group or some of its partitions, which have
    their last known state. A group without `partitions` was read from the store.
    """

    group: str
    lag: int | None
    time_lag: TimeLag | None
    rates: Rates | None
    catch_up: TimeToCatchUp
    evaluation: Evaluation
    partitions: tuple[PartitionState, ...]
    seen_ms: int
    max_lag: int | None = None
    partition_count: int = 0
    unknown_partitions: int = 0
    uncommitted_records: int = 0
    members: int | None = None
    broker_state: str = ""
    since_ms: int | None = None
    gone: bool = False
    stale: str = ""

    @property
    def status_name(self) -> str:
        """The name of the status that is shown: GONE for a group that is no longer on the broker."""
        return "GONE" if self.gone else self.evaluation.status.name


def worst_first(states: Iterable[GroupState]) -> list[GroupState]:
    """Return the groups sorted by status (worst first), then by lag (highest first), then by name."""
    return sorted(states, key=lambda one: (-one.evaluation.status, -(one.lag or 0), one.group))


def evaluate_partition(
    offsets: PartitionOffsets,
    samples: Sequence[OffsetSample],
    time_lag: TimeLag | None,
    *,
    now_ms: int,
    rules: Rules,
    open_from: int | None = None,
) -> Evaluation:
    """Return the evaluation of a partition by its samples, the last of which is current, and by its time lag.

    `open_from` is the offset where an open transaction begins, the last stable offset; None: it is not known.
    """
    if offsets.committed is None:
        return Evaluation(Status.NOTFOUND, "The group has committed nothing here.")
    if offsets.lag is None:
        return evaluate_past_end(samples, now_ms=now_ms, rules=rules)
    evaluation = _evaluate_waiting(offsets, samples, time_lag, now_ms, rules)
    if open_from is not None and open_from < offsets.end and evaluation.status in (Status.STALL, Status.STOP):
        evaluation = replace(evaluation, reason=f"{evaluation.reason} {_OPEN.format(open_from)}")
    if not offsets.deleted:
        return evaluation
    reason = f"{offsets.deleted:,} offsets were deleted before they were read. {evaluation.reason}"
    return Evaluation(max(evaluation.status, Status.WARN), reason)


def _evaluate_waiting(
    offsets: PartitionOffsets, samples: Sequence[OffsetSample], time_lag: TimeLag | None, now_ms: int, rules: Rules
) -> Evaluation:
    waiting = (offsets.lag or 0) - offsets.deleted
    if offsets.deleted and waiting <= rules.allowed_lag:
        return Evaluation(Status.OK, f"{waiting:,} other records wait.")
    if waiting > rules.allowed_lag and offsets.left:
        return Evaluation(Status.WARN, _LEFT.format(waiting))
    evaluation = evaluate_samples(samples, now_ms=now_ms, rules=rules, deleted=offsets.deleted)
    return evaluation if time_lag is None else evaluate_age(evaluation, time_lag.seconds, rules=rules)


def worst_partitions_first(states: Iterable[PartitionState]) -> list[PartitionState]:
    """Return the partitions sorted by status (worst first), then by lag (highest first), then by name."""
    return sorted(states, key=lambda one: (-one.evaluation.status, -(one.lag or 0), one.topic, one.partition))


def group_state(
    group: str,
    partitions: Iterable[PartitionState],
    rates: Iterable[tuple[Rates | None, Rates | None]],
    *,
    seen_ms: int,
    members: int | None = None,
    broker_state: str = "",
) -> GroupState:
    """Return a group's state. `rates` has each partition's rates over the window and over the newer half of it."""
    states = worst_partitions_first(partitions)
    lags = [state.lag for state in states if state.lag is not None]
    lag = sum(lags) if lags else None
    totals = [total([one for one in period if one is not None]) for period in zip(*rates, strict=True) if any(period)]
    return GroupState(
        group=group,
        lag=lag,
        # A partition without a lag has no time lag; it does not make the time lag of the group unknown.
        time_lag=worst([one.time_lag for one in states if one.lag is not None]),
        rates=totals[0] if totals else None,
        catch_up=CatchUp.UNKNOWN if lag is None or any(one.stale for one in states) else time_to_catch_up(lag, totals),
        evaluation=evaluate_group([(state.name, state.evaluation) for state in states]),
        partitions=tuple(states),
        seen_ms=seen_ms,
        max_lag=max(lags, default=None),
        partition_count=len(states),
        unknown_partitions=sum(one.lag is None and not one.stale for one in states),
        uncommitted_records=sum(state.records for state in states if state.lag is None),
        members=members,
        broker_state=broker_state,
        stale=_stale_partitions([one.name for one in states if one.stale]),
    )


def keep_since(state: GroupState, before: GroupState | None) -> GroupState:
    """Return the state with its `since_ms`, which is that of the state before if the status is the same."""
    same = before is not None and not before.gone and before.evaluation.status is state.evaluation.status
    return replace(state, since_ms=before.since_ms if same and before is not None else state.seen_ms)


def mark_gone(state: GroupState) -> GroupState:
    """Return a group's last state, marked as gone: the group is no longer on the broker, so no record waits for it."""
    lag = "its lag was not known" if state.lag is None else f"its lag was {state.lag:,}"
    evaluation = Evaluation(Status.NOTFOUND, f"The group is no longer on the broker; when it was last seen {lag}.")
    return replace(
        state, evaluation=evaluation, gone=True, time_lag=None, catch_up=CatchUp.UNKNOWN, rates=None, stale=""
    )


def mark_stale(state: GroupState) -> GroupState:
    """Return a group's last state, marked as stale: the newest round did not read the group."""
    if state.gone:
        return state
    partitions = tuple(mark_partition_stale(one) for one in state.partitions)
    return replace(state, partitions=partitions, catch_up=CatchUp.UNKNOWN, rates=None, stale=NOT_READ)


def mark_partition_stale(state: PartitionState) -> PartitionState:
    """Return a partition's last state, marked as stale: the newest round did not read the partition."""
    if state.stale:
        return state
    reason = f"It was not read in the newest round; before: {state.evaluation.reason}"
    return replace(state, evaluation=Evaluation(state.evaluation.status, reason), rates=None, stale=True)


def unread_partition(topic: str, partition: int) -> PartitionState:
    """Return the state of a partition that no round has read yet."""
    evaluation = Evaluation(Status.NOTFOUND, "It has not been read yet.")
    return PartitionState(topic, partition, None, None, None, evaluation, stale=True)


def _stale_partitions(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    shown = ", ".join(names[:MAX_NAMED])
    return f"Partitions that were not read in the newest round, with their last state: {shown}{more}."
