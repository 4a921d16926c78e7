"""Rounds of the lag collector, created from numbers instead of a broker's responses."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import pairwise

from tallystream_aggregator.sinks.base import Point, PointReader
from tallystream_dashboards.lag.collector.recorder import Recorder
from tallystream_dashboards.lag.collector.settings import Patterns
from tallystream_dashboards.lag.collector.tracker import LagTracker, Round
from tallystream_dashboards.lag.offsets import GroupOffsets, PartitionId, PartitionOffsets, RoundOffsets
from tallystream_dashboards.lag.state import GroupState
from tallystream_dashboards.lag.status import Rules, Status


def round_of(*groups: GroupOffsets, unread: Iterable[str] = (), problems: tuple[str, ...] = ()) -> RoundOffsets:
    """Return a round that read these groups, but not the `unread` ones."""
    bounds = {one.id: (one.start, one.end) for group in groups for one in group.partitions}
    missing = (GroupOffsets(name, (), complete=False) for name in unread)
    return RoundOffsets((*groups, *missing), problems, bounds=bounds)


def group(
    name: str, *partitions: tuple[int | None, int], topic: str = "orders", members: int | None = 1
) -> GroupOffsets:
    """Return a group by its partitions' (committed, end)."""
    offsets = (
        PartitionOffsets(topic, number, start=0, end=end, committed=committed)
        for number, (committed, end) in enumerate(partitions)
    )
    return GroupOffsets(name, tuple(offsets), members, "Stable" if members else "Empty")


class Rounds:
    """The collector's tracker and recorder, over a broker that returns the given rounds."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.open_from: dict[PartitionId, int] = {}
        self.newest_round = Round((), {}, 0)
        self._tracker = LagTracker(
            self,
            Patterns(),
            rules or Rules(),
            clock=lambda: self._offsets.ts_ms / 1000,
        )
        self._recorder = Recorder()
        self._offsets = round_of()

    def fetch(self, _patterns: Patterns, known: Collection[str]) -> RoundOffsets:
        """Return the round. A known group that is not in it is deleted."""
        deleted = frozenset(known) - {group.group for group in self._offsets.groups}
        return replace(self._offsets, deleted=deleted)

    def last_stable(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, int]:
        """Return where open transactions begin in those of the partitions that have one."""
        return {one: offset for one in partitions if (offset := self.open_from.get(one)) is not None}

    def points(self, offsets: RoundOffsets, ts_ms: int, records: Iterable[Point] = ()) -> list[Point]:
        """Run a round with these offsets, and with points of what became of records; return its points."""
        self._offsets = replace(offsets, ts_ms=ts_ms)
        self.newest_round = replace(self._tracker.round(), records=tuple(records))
        return self._recorder.points(self.newest_round)

    def load(self, reader: PointReader, now_ms: int) -> None:
        """Load the history from a store, as a collector does that starts now."""
        self._offsets = replace(self._offsets, ts_ms=now_ms)
        self._tracker.load(reader)

    @property
    def states(self) -> tuple[GroupState, ...]:
        """The groups after the newest round, worst first."""
        return self.newest_round.states


def entered(statuses: list[tuple[int, Status]]) -> list[tuple[int, Status]]:
    """Return when each status began."""
    return statuses[:1] + [now for before, now in pairwise(statuses) if before[1] is not now[1]]


def of_shipper(*rounds: tuple[int, int, int], now_ms: int) -> list[Point]:
    """Return rounds: so many seconds ago, what the shipper had committed, and the end of its topic."""
    collector, points = Rounds(), list[Point]()
    for ago_s, committed, end in rounds:
        aggregator = group("tallystream-aggregator", (end, end), topic="metrics")
        shipper = group("tallystream-shipper", (committed, end), topic="metrics-agg")
        points += collector.points(round_of(aggregator, shipper), now_ms - ago_s * 1000)
    return points
