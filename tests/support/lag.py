"""Rounds of lag as a collector would have found them, made from plain numbers, and kept in a real store."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tallystream_dashboards.lag.collector.recorder import Recorder
from tallystream_dashboards.lag.live import GroupStates
from tallystream_dashboards.lag.model import GroupLag, Round, partition_lag
from tallystream_dashboards.lag.status import Rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream_aggregator.sinks.base import Point
    from tallystream_dashboards.lag.state import GroupState


def found(*groups: GroupLag, unread: Iterable[str] = (), problems: tuple[str, ...] = ()) -> Round:
    """Return a round that found these groups, and could not read those that are `unread`."""
    places = {(one.topic, one.partition): (one.start, one.end) for group in groups for one in group.partitions}
    return Round((*groups, *(GroupLag(name, (), complete=False) for name in unread)), problems, places=places)


def group(name: str, *partitions: tuple[int | None, int], topic: str = "orders", members: int | None = 1) -> GroupLag:
    """Return a group by its partitions' (committed, end)."""
    made = (
        partition_lag(topic, number, start=0, end=end, committed=committed)
        for number, (committed, end) in enumerate(partitions)
    )
    return GroupLag(name, tuple(made), members, "Stable" if members else "Empty")


class Rounds:
    """Feeds rounds to the evaluator and the recorder, as the collector does."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.live = GroupStates(rules or Rules())
        self.recorder = Recorder(rules)
        self.states: list[GroupState] = []

    def points(self, round_: Round, ts_ms: int, skew: Mapping[tuple[str, int], int] | None = None) -> list[Point]:
        """Return the points of a round; `skew` is in ms by topic and partition. Of other groups it says: gone."""
        gone = self.live.names - {group.group for group in round_.groups}
        round_ = replace(round_, gone=frozenset(gone))
        self.live.observe(round_, ts_ms)
        self.states = self.live.evaluate(round_, ts_ms, skew=skew)
        return self.recorder.round(self.states, round_.places, ts_ms, problems=round_.problems)
