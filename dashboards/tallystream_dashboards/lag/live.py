"""The current state of every group, updated in each round from the broker's answers. No input or output."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tallystream_dashboards.lag.evaluate import worst_first
from tallystream_dashboards.lag.history import HISTORY_MS, EndOffsetHistory, OffsetSamples, limit
from tallystream_dashboards.lag.model import Behind, BeyondEnd
from tallystream_dashboards.lag.state import (
    GroupState,
    PartitionState,
    evaluate_partition,
    gone,
    group_state,
    never_read,
    since,
    unread,
    unread_partition,
)
from tallystream_dashboards.lag.status import Evaluation, OffsetSample, Rules, Status
from tallystream_dashboards.lag.time_lag import Zero

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_dashboards.lag.catch_up import Rates
    from tallystream_dashboards.lag.model import GroupLag, PartitionId, PartitionLag, Probed, Round
    from tallystream_dashboards.lag.time_lag import SecondsLag

GONE_MS = 7 * 86_400_000
"""How long a group that is no longer on the broker is kept, in ms."""

_NOTHING_TO_DO = Evaluation(Status.OK, "The lag is 0.")


class GroupStates:
    """The states of all groups. It keeps the ends of an hour, the samples of a window and the last states in memory."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._ends: dict[PartitionId, EndOffsetHistory] = {}
        self._samples: dict[tuple[str, PartitionId], OffsetSamples] = {}
        self._groups: dict[str, GroupState] = {}
        self._asked: dict[int, int] = {}

    @property
    def states(self) -> list[GroupState]:
        """All groups, worst first, including those that are gone."""
        return worst_first(self._groups.values())

    @property
    def names(self) -> set[str]:
        """The names of the groups that are not gone."""
        return {name for name, state in self._groups.items() if not state.gone}

    @property
    def ends(self) -> Mapping[PartitionId, EndOffsetHistory]:
        """The histories of the partitions' ends."""
        return self._ends

    @property
    def asked(self) -> Mapping[int, int]:
        """The time of each request for the ends, by the time of its answer, both epoch ms."""
        return self._asked

    def known(self, group: GroupState) -> None:
        """Set a group's state from before this process began."""
        self._groups[group.group] = group

    def load_ends(self, place: PartitionId, times_ms: list[int], ends: list[int]) -> None:
        """Add a partition's ends from before this process began."""
        self._ends.setdefault(place, EndOffsetHistory()).load(times_ms, ends)

    def load_samples(self, group: str, place: PartitionId, samples: list[OffsetSample]) -> None:
        """Add a group's samples from before this process began."""
        kept = self._samples.setdefault((group, place), OffsetSamples())
        for sample in samples:
            kept.add(sample, window_ms=self._window_ms)

    def observe(self, found: Round, now_ms: int) -> None:
        """Add the ends of a round, which were answered at `now_ms`."""
        self._asked[now_ms] = found.requested_ms
        while next(iter(self._asked)) < now_ms - 2 * HISTORY_MS:
            del self._asked[next(iter(self._asked))]
        most = limit(len(found.places))
        for place, (_, end) in found.places.items():
            self._ends.setdefault(place, EndOffsetHistory()).add(now_ms, end, most=most)

    def evaluate(
        self,
        found: Round,
        now_ms: int,
        *,
        skew: Mapping[PartitionId, int] | None = None,
        probed: Mapping[PartitionId, Mapping[int, Probed]] | None = None,
    ) -> list[GroupState]:
        """Update the groups with a round, and return the state of every group, worst first.

        `skew` is in ms by partition; `probed` has the records that were read, by partition and offset. Groups and
        partitions that the round did not read keep their last state.
        """
        for group in found.groups:
            before = self._groups.get(group.group)
            if not group.partitions and not group.complete:
                if before is not None:
                    self._groups[group.group] = unread(before)
            elif group.partitions or group.unread or before is not None:
                state = self._group(group, now_ms, skew or {}, probed or {})
                self._groups[group.group] = since(state, before)
        for name, before in list(self._groups.items()):
            if name in found.gone and not before.gone:
                self._groups[name] = since(gone(before), before)
                self._forget(name)
            elif before.gone and now_ms - before.seen_ms > GONE_MS:
                del self._groups[name]
        self._forget_ends(found)
        return self.states

    @property
    def _window_ms(self) -> int:
        return round(self._rules.window_s * 1000)

    def _forget(self, group: str) -> None:
        for key in [key for key in self._samples if key[0] == group]:
            del self._samples[key]

    def _forget_ends(self, found: Round) -> None:
        """Delete the ends of partitions that were not read and that no group needs."""
        lost = self._ends.keys() - found.places.keys()
        if lost:
            for place in lost - {place for _, place in self._samples}:
                del self._ends[place]

    def _group(
        self,
        group: GroupLag,
        now_ms: int,
        skew: Mapping[PartitionId, int],
        probed: Mapping[PartitionId, Mapping[int, Probed]],
    ) -> GroupState:
        before = self._groups.get(group.group)
        if before is not None and not before.gone and not group.complete and group.members is None:
            group = replace(group, members=before.members, state=before.broker_state)
        states, rates = [], []
        spans = (self._window_ms, self._window_ms // 2)
        for one in group.partitions:
            place = (one.topic, one.partition)
            samples = self._add_sample(group, one, now_ms)
            rates.append((None, None) if samples is None else tuple(samples.rates(now_ms - span) for span in spans))
            at = one.progress.committed if isinstance(one.progress, Behind | BeyondEnd) else None
            record = probed.get(place, {}).get(-1 if at is None else at)
            states.append(
                self._partition(one, samples, rates[-1][0], now_ms=now_ms, skew_ms=skew.get(place), record=record)
            )
        states += self._unread(group, before)
        return group_state(group.group, states, rates, seen_ms=now_ms, members=group.members, broker_state=group.state)

    def _unread(self, group: GroupLag, before: GroupState | None) -> list[PartitionState]:
        """Return the partitions that the round did not read, with their last states; delete those that are gone."""
        known = {(one.topic, one.partition): one for one in (before.partitions if before and not before.gone else ())}
        missing = known.keys() - {(one.topic, one.partition) for one in group.partitions}
        unread_places = group.unread if group.complete else group.unread | missing
        for place in missing - unread_places:
            self._samples.pop((group.group, place), None)
        return [unread_partition(known[at]) if at in known else never_read(*at) for at in sorted(unread_places)]

    def _add_sample(self, group: GroupLag, one: PartitionLag, now_ms: int) -> OffsetSamples | None:
        key = (group.group, (one.topic, one.partition))
        if not isinstance(one.progress, Behind | BeyondEnd):
            self._samples.pop(key, None)
            return None
        kept = self._samples.setdefault(key, OffsetSamples())
        kept.add(OffsetSample(now_ms, one.progress.committed, one.end, group.members), window_ms=self._window_ms)
        return kept

    def _partition(
        self,
        one: PartitionLag,
        samples: OffsetSamples | None,
        rates: Rates | None,
        *,
        now_ms: int,
        skew_ms: int | None,
        record: Probed | None,
    ) -> PartitionState:
        committed = one.progress.committed if isinstance(one.progress, Behind | BeyondEnd) else None
        ends = self._ends.get((one.topic, one.partition), EndOffsetHistory())
        if one.lag == 0:
            seconds: SecondsLag = Zero()
            evaluation = _NOTHING_TO_DO
        else:
            nothing = record is not None and record.nothing
            seconds = Zero() if nothing else ends.age(committed, now_ms=now_ms)
            seen = [] if samples is None else samples.all()
            evaluation = evaluate_partition(seen, seconds, now_ms=now_ms, rules=self._rules)
        return PartitionState(
            topic=one.topic,
            partition=one.partition,
            lag=one.lag,
            seconds=seconds,
            rates=rates,
            evaluation=evaluation,
            start=one.start,
            end=one.end,
            committed=committed,
            record_ms=record.timestamp_ms if record is not None else None,
            skew_ms=skew_ms,
        )
