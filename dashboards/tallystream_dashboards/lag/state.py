"""The state of a partition and of a group at one moment. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tallystream_dashboards.lag.catch_up import Drain, NotKnown, Rates, add, drain
from tallystream_dashboards.lag.status import (
    Evaluation,
    OffsetSample,
    Rules,
    Status,
    evaluate_group,
    evaluate_samples,
    too_old,
)
from tallystream_dashboards.lag.time_lag import SecondsLag, Unknown, Zero, at_least, worst

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


NOT_READ = "The group was not read in the newest round: this is its last state."
MAX_NAMED = 3
"""How many partitions a sentence names; the others are counted."""

_NO_RECORD = (
    "Nothing to read: the last {:,} offsets are transaction markers, compacted records, or an open transaction."
)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state of one partition of a group. `lag` is None if it is not known, `rates` if there are too few samples.

    `record_ms` is the timestamp of the oldest unconsumed record, if it was requested. `skew_ms` is how far timestamps
    in the partition are ahead of the records' arrival (negative: behind it); None: not known. A `stale` partition was
    not read in the newest round; it has its last known state.
    """

    topic: str
    partition: int
    lag: int | None
    seconds: SecondsLag
    rates: Rates | None
    evaluation: Evaluation
    start: int | None = None
    end: int | None = None
    committed: int | None = None
    record_ms: int | None = None
    skew_ms: int | None = None
    stale: bool = False

    @property
    def name(self) -> str:
        """The topic and the partition, as in `orders/3`."""
        return f"{self.topic}/{self.partition}"

    @property
    def held(self) -> int:
        """The number of offsets in the partition, 0 if it is not known."""
        return 0 if self.start is None or self.end is None else self.end - self.start


@dataclass(frozen=True, slots=True)
class GroupState:
    """The state of one group: the sum of the known lags, the highest age, when it has caught up, and the status.

    The lag of `unknown` partitions is not known, usually because nothing was committed there. They have up to `unread`
    records, so the group's lag is from `lag` to `lag` + `unread`. The group has had its status since `since_ms`. A
    group that is `gone` is no longer on the broker and has its last known state. `stale` is a sentence if the newest
    round did not read the group or some of its partitions, which have their last known state.
    """

    group: str
    lag: int | None
    seconds: SecondsLag
    rates: Rates | None
    drain: Drain
    evaluation: Evaluation
    partitions: tuple[PartitionState, ...]
    seen_ms: int
    worst_lag: int | None = None
    count: int = 0
    unknown: int = 0
    unread: int = 0
    members: int | None = None
    broker_state: str = ""
    since_ms: int | None = None
    gone: bool = False
    logged_skew_ms: int | None = None
    stale: str = ""
    logged_seen_ms: int | None = None

    @property
    def skew_ms(self) -> int | None:
        """The skew of its partitions with the largest absolute value; the stored one if no partition has a skew."""
        known = [one.skew_ms for one in self.partitions if one.skew_ms]
        return max(known, key=abs, default=self.logged_skew_ms)


def evaluate_partition(
    samples: Sequence[OffsetSample], seconds: SecondsLag, *, now_ms: int, rules: Rules
) -> Evaluation:
    """Return the evaluation of a partition by its samples, the last of which is current, and by its age.

    A partition without samples has no committed offset.
    """
    if not samples:
        return Evaluation(Status.NOTFOUND, "The group has committed nothing here.")
    if samples[-1].committed > samples[-1].end:
        return Evaluation(Status.NOTFOUND, "The committed offset is past the end: the topic was recreated.")
    if isinstance(seconds, Zero) and samples[-1].lag > rules.allowed_lag:
        return Evaluation(Status.OK, _NO_RECORD.format(samples[-1].lag))
    return too_old(evaluate_samples(samples, now_ms=now_ms, rules=rules), at_least(seconds), rules=rules)


def group_state(
    group: str,
    partitions: Iterable[PartitionState],
    halves: Iterable[tuple[Rates | None, ...]],
    *,
    seen_ms: int,
    members: int | None = None,
    broker_state: str = "",
) -> GroupState:
    """Return a group's state. `halves` has each partition's rates over the window and over the newer half of it."""
    states = sorted(partitions, key=lambda one: (-one.evaluation.status, -(one.lag or 0), one.topic, one.partition))
    known = [state.lag for state in states if state.lag is not None]
    lag = sum(known) if known else None
    seen = [add([part for part in half if part is not None]) for half in zip(*halves, strict=True) if any(half)]
    return GroupState(
        group=group,
        lag=lag,
        # A partition without a lag has no age; it does not make the age of the group unknown.
        seconds=worst([one.seconds for one in states if one.lag is not None]) if known else _no_age(states),
        rates=seen[0] if seen else None,
        drain=NotKnown() if lag is None or any(one.stale for one in states) else drain(lag, seen),
        evaluation=evaluate_group([(state.name, state.evaluation) for state in states]),
        partitions=tuple(states),
        seen_ms=seen_ms,
        worst_lag=max(known, default=None),
        count=len(states),
        unknown=sum(one.lag is None and not one.stale for one in states),
        unread=sum(state.held for state in states if state.lag is None),
        members=members,
        broker_state=broker_state,
        stale=_not_read([one.name for one in states if one.stale]),
    )


def since(state: GroupState, before: GroupState | None) -> GroupState:
    """Return the state with its `since_ms`, which is that of the state before if the status is the same."""
    same = before is not None and not before.gone and before.evaluation.status is state.evaluation.status
    return replace(state, since_ms=before.since_ms if same and before is not None else state.seen_ms)


def gone(state: GroupState) -> GroupState:
    """Return a group's last state, marked as gone: the group is no longer on the broker."""
    had = "its lag was not known" if state.lag is None else f"its lag was {state.lag:,}"
    reason = f"The group is no longer on the broker; when it was last seen {had}."
    lost = Evaluation(Status.NOTFOUND, reason)
    return replace(state, evaluation=lost, gone=True, drain=NotKnown(), rates=None, stale="")


def unread(state: GroupState) -> GroupState:
    """Return a group's last state, marked as stale: the newest round did not read the group."""
    if state.gone:
        return state
    partitions = tuple(unread_partition(one) for one in state.partitions)
    return replace(state, partitions=partitions, drain=NotKnown(), rates=None, stale=NOT_READ)


def unread_partition(state: PartitionState) -> PartitionState:
    """Return a partition's last state, marked as stale: the newest round did not read the partition."""
    if state.stale:
        return state
    unread = Evaluation(
        state.evaluation.status, f"It was not read in the newest round; before: {state.evaluation.reason}"
    )
    return replace(state, evaluation=unread, rates=None, stale=True)


def never_read(topic: str, partition: int) -> PartitionState:
    """Return the state of a partition that no round has read yet."""
    reason = "It has not been read yet."
    return PartitionState(
        topic, partition, None, Unknown("it was not read"), None, Evaluation(Status.NOTFOUND, reason), stale=True
    )


def _not_read(names: Sequence[str]) -> str:
    if not names:
        return ""
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    shown = ", ".join(names[:MAX_NAMED])
    return f"Partitions that were not read in the newest round, with their last state: {shown}{more}."


def _no_age(states: Sequence[PartitionState]) -> SecondsLag:
    return states[0].seconds if states else Unknown("there are no partitions")
