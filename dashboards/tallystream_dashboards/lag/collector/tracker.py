"""One round: read the offsets from the broker, keep their history, and evaluate every group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from tallystream_aggregator.times import DAY_MS
from tallystream_dashboards.lag.catch_up import Backlog
from tallystream_dashboards.lag.changes import hold
from tallystream_dashboards.lag.reader import last_round_ms, offsets, own, read_groups, read_partitions, read_samples
from tallystream_dashboards.lag.samples import MAX_GAP_MS, OffsetSample, OffsetSamples
from tallystream_dashboards.lag.state import (
    GONE_MS,
    GroupState,
    PartitionState,
    group_state,
    keep_since,
    limited,
    mark_gone,
    stale_partition,
    unread_partition,
    worst_first,
)
from tallystream_dashboards.lag.status import CAUGHT_UP, STOPPED, Late, Rules, Status, evaluate_partition
from tallystream_dashboards.lag.storage import ENDS
from tallystream_dashboards.lag.time_lag import HISTORY_MS, EndOffsetHistory, max_observations

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from tallystream_aggregator.sinks.base import Point, PointReader
    from tallystream_dashboards.lag.collector.settings import Patterns
    from tallystream_dashboards.lag.offsets import (
        Bounds,
        GroupOffsets,
        PartitionId,
        PartitionOffsets,
        RoundOffsets,
    )


class Broker(Protocol):
    """The requests to the broker, as in `OffsetFetcher`."""

    def fetch(self, patterns: Patterns, known: Collection[str]) -> RoundOffsets:
        """Return the offsets of every group, including those that are `known` from earlier rounds."""

    def last_stable(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """Return the last stable offset of each partition."""


@dataclass(frozen=True, slots=True)
class Round:
    """The results of one round: every group, worst first, the bounds of every partition, and the problems.

    `ts_ms` is when the ends were answered, `before_ms` when those of the newest round before it were, and `took_s` the
    duration of the round. `records` are the points that say what became of the records of each consumer.
    """

    states: tuple[GroupState, ...]
    bounds: Mapping[PartitionId, Bounds]
    ts_ms: int
    before_ms: int = 0
    problems: tuple[str, ...] = ()
    took_s: float = 0.0
    records: tuple[Point, ...] = ()


class LagTracker:
    """The lag of every group that `patterns` match, with its status by `rules`.

    It keeps the ends of an hour, the samples of a window and the last states in memory. `clock` returns epoch seconds.
    `assigned_only` leaves out topics of which no member has a partition, if the group's members have others.
    """

    def __init__(
        self,
        broker: Broker,
        patterns: Patterns,
        rules: Rules,
        *,
        clock: Callable[[], float],
        assigned_only: bool = False,
    ) -> None:
        self._broker = broker
        self._patterns = patterns
        self._rules = rules
        self._clock = clock
        self._assigned_only = assigned_only
        self._open_from: dict[PartitionId, int] = {}
        self._ends: dict[PartitionId, EndOffsetHistory] = {}
        self._samples: dict[tuple[str, PartitionId], OffsetSamples] = {}
        self._groups: dict[str, GroupState] = {}
        self._newest_ms = 0

    def round(self) -> Round:
        """Run one round and return its results.

        Groups and partitions that the round did not read keep their last state.

        Raises:
            BrokerUnavailableError: no broker answered.
            StoppedError: a stop was requested meanwhile.
        """
        began = self._clock()
        known = {name for name, state in self._groups.items() if not state.gone}
        offsets = self._broker.fetch(self._patterns, known)
        if self._assigned_only:
            offsets = replace(offsets, groups=tuple(_without_left(group) for group in offsets.groups))
        if offsets.ts_ms < self._newest_ms:  # the clock was set back, so some of what was observed comes again
            self._ends, self._samples, self._groups = {}, {}, {}
        self._add_ends(offsets)
        self._open_from = self._broker.last_stable(self._stopped())
        self._evaluate(offsets)
        before_ms, self._newest_ms = self._newest_ms, offsets.ts_ms
        return Round(
            states=tuple(worst_first(self._groups.values())),
            bounds=offsets.bounds,
            ts_ms=offsets.ts_ms,
            before_ms=before_ms,
            problems=offsets.problems,
            took_s=self._clock() - began,
        )

    def load(self, store: PointReader) -> None:
        """Load the history from before this process began from the store, so that ages and statuses continue.

        Raises:
            SinkUnavailableError: the store does not answer.
        """
        now_ms = round(self._clock() * 1000)
        # Later rounds are of a clock that was set back since. A clock that is days behind may not be set yet.
        self._newest_ms = last_round_ms(store, at_ms=now_ms + DAY_MS) or 0
        ends = store.read(ENDS, ("end",), start_ms=now_ms - HISTORY_MS, end_ms=now_ms + 1)
        for one in own(ends, "topic", "partition"):
            history = self._ends.setdefault((one.tags["topic"], int(one.tags["partition"])), EndOffsetHistory())
            for ts_ms, end in offsets(one).items():
                history.add(ts_ms, end)
        partitions = read_partitions(store, at_ms=now_ms)
        for state in read_groups(store, at_ms=now_ms):
            if self._patterns.match(state.group):
                known = () if state.gone or not state.partition_count else partitions.get(state.group, ())
                self._groups[state.group] = replace(state, partitions=tuple(known))
        start_ms = now_ms - self._rules.window_ms - MAX_GAP_MS
        for key, samples in read_samples(store, start_ms=start_ms, end_ms=now_ms + 1).items():
            self._samples[key] = OffsetSamples(self._rules.window_ms)
            for sample in samples:
                self._samples[key].add(sample)

    def _add_ends(self, offsets: RoundOffsets) -> None:
        limit = max_observations(len(offsets.bounds))
        for partition, (_, end) in offsets.bounds.items():
            self._ends.setdefault(partition, EndOffsetHistory()).add(offsets.ts_ms, end, limit=limit)

    def _stopped(self) -> set[PartitionId]:
        """Return the partitions in which a group had stopped in the last round."""
        partitions = (one for state in self._groups.values() for one in state.partitions)
        return {(one.topic, one.partition) for one in partitions if one.evaluation.status in STOPPED and not one.stale}

    def _evaluate(self, offsets: RoundOffsets) -> None:
        for group in offsets.groups:
            before = self._groups.get(group.group)
            is_known = before is not None and (group.complete or before.partitions)
            if is_known or group.partitions or group.unread:
                state = self._group(group, before, offsets.ts_ms)
                self._groups[group.group] = keep_since(state, before, offsets.ts_ms)
        for name, before in list(self._groups.items()):
            if name in offsets.deleted and not before.gone:
                self._groups[name] = keep_since(mark_gone(before), before, before.seen_ms)
                self._samples = {key: samples for key, samples in self._samples.items() if key[0] != name}
            elif before.gone and offsets.ts_ms - before.seen_ms > GONE_MS:
                del self._groups[name]
        # The ends of partitions that were not read are kept as long as a group needs them.
        unread = self._ends.keys() - offsets.bounds.keys()
        if unread:
            for partition in unread - {partition for _, partition in self._samples}:
                del self._ends[partition]

    def _group(self, group: GroupOffsets, before: GroupState | None, now_ms: int) -> GroupState:
        if before is not None and not before.gone and not group.complete and group.members is None:
            group = replace(group, members=before.members, state=before.broker_state)
        last = {} if before is None else {(one.topic, one.partition): one for one in before.partitions}
        late_since_ms = None if before is None or before.gone else before.late_since_ms
        group_is_bad = before is not None and before.evaluation.status > Status.NOTFOUND
        states, backlogs, any_late = [], [], False
        for one in group.partitions:
            oldest = None if one.committed is None else one.committed + one.deleted
            time_lag = self._ends[one.id].time_lag(oldest, now_ms=now_ms)
            late = self._rules.is_late((one.lag or 0) - one.deleted, time_lag)
            any_late = any_late or late
            samples = self._add_sample(group.group, one, now_ms)
            found = CAUGHT_UP
            if one.lag != 0:
                found = evaluate_partition(
                    one,
                    [] if samples is None else samples.all(),
                    time_lag,
                    members=group.members,
                    now_ms=now_ms,
                    rules=self._rules,
                    late=Late(late_since_ms or now_ms, group_is_bad) if late else None,
                    open_from=self._open_from.get(one.id),
                )
            rates = (None, None) if samples is None else samples.rates(now_ms)
            if late or found.status > Status.WARN:
                backlogs.append(Backlog(one.lag or 0, rates))
            if before is not None and one.id in last:
                newest = last[one.id].waiting or last[one.id].evaluation
                found = hold(found, newest, before.seen_ms, now_ms=now_ms, rules=self._rules)
            states.append(
                PartitionState(
                    topic=one.topic,
                    partition=one.partition,
                    lag=one.lag,
                    time_lag=time_lag,
                    rates=rates[0],
                    evaluation=found,
                    start=one.start,
                    end=one.end,
                    committed=one.committed,
                )
            )
        states = limited([*states, *self._unread_partitions(group, last)], before, now_ms=now_ms, rules=self._rules)
        if any_late:
            late_since_ms = late_since_ms or now_ms
        elif not any(one.stale for one in states):
            late_since_ms = None
        return group_state(
            group.group,
            states,
            backlogs,
            seen_ms=now_ms if before is None or group.partitions or group.complete else before.seen_ms,
            members=group.members,
            broker_state=group.state,
            late_since_ms=late_since_ms,
        )

    def _unread_partitions(
        self, group: GroupOffsets, last: Mapping[PartitionId, PartitionState]
    ) -> list[PartitionState]:
        """Return the partitions that the round did not read, with their last states; forget those that are deleted."""
        missing = last.keys() - {one.id for one in group.partitions}
        unread = group.unread if group.complete else group.unread | missing
        for partition in missing - unread:
            self._samples.pop((group.group, partition), None)
        return [stale_partition(last[one]) if one in last else unread_partition(*one) for one in sorted(unread)]

    def _add_sample(self, group: str, partition: PartitionOffsets, now_ms: int) -> OffsetSamples | None:
        key = (group, partition.id)
        if partition.committed is None:
            self._samples.pop(key, None)
            return None
        if key not in self._samples:
            self._samples[key] = OffsetSamples(self._rules.window_ms)
        self._samples[key].add(OffsetSample(now_ms, partition.committed, partition.end))
        return self._samples[key]


def _without_left(group: GroupOffsets) -> GroupOffsets:
    return replace(group, partitions=tuple(one for one in group.partitions if not one.left))
