"""The answers of brokers and of the ledger in one round, and the lag of each group by them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tallystream_dashboards.lag.model import GroupLag, PartitionId, partition_lag

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

DEAD = "Dead"
"""The state of a group that does not exist, or is of a type that the client cannot describe."""


class Described(NamedTuple):
    """A group as the broker describes it: the partitions that each member is assigned, and the group's state."""

    assigned: list[set[PartitionId]]
    state: str


class Commits(NamedTuple):
    """The committed offsets of a group. `unread` partitions had an error. If not `complete`, there was no answer."""

    offsets: dict[PartitionId, int]
    unread: frozenset[PartitionId] = frozenset()
    complete: bool = True

    def ahead(self, written: Mapping[PartitionId, int]) -> Commits:
        """Return the offsets of both sources, the higher one of each partition."""
        further = {place: max(offset, self.offsets.get(place, 0)) for place, offset in written.items()}
        return self._replace(offsets={**self.offsets, **further}, unread=self.unread - further.keys())


NONE = Commits({})
UNREAD = Commits({}, complete=False)


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers about the groups of a round.

    Args:
        listed: the groups that brokers list.
        complete: whether every broker answered the listing.
        asked: the groups that were requested by name: the listed ones and those of earlier rounds.
        described: the groups whose description was received.
        commits: the offsets of every group that was requested or is in the ledger.
        lost_queries: queries of earlier rounds that the ledger does not have now.
        ledger_read: whether the ledger has been read.
    """

    listed: AbstractSet[str]
    complete: bool
    asked: AbstractSet[str]
    described: Mapping[str, Described]
    commits: Mapping[str, Commits]
    lost_queries: AbstractSet[str]
    ledger_read: bool

    @property
    def topics(self) -> set[str]:
        """The topics in which a group has an assigned partition or an offset."""
        assigned = (places for one in self.described.values() for places in one.assigned)
        committed = ((*one.offsets, *one.unread) for one in self.commits.values())
        return {topic for places in (*assigned, *committed) for topic, _ in places}

    @property
    def absent(self) -> set[str]:
        """The groups that no broker listed and that do not exist according to their coordinators."""
        return {
            name
            for name in self.asked - self.listed
            if name in self.described and self.described[name].state == DEAD and self.commits[name] == NONE
        }

    @property
    def gone(self) -> frozenset[str]:
        """The groups that are gone: none after an incomplete listing, and no query if the ledger was not read."""
        groups = self.absent if self.complete else set()
        queries = self.lost_queries if self.ledger_read else set()
        return frozenset(groups | queries)

    def lags(
        self, partitions: Mapping[str, list[int] | None], ends: Mapping[PartitionId, tuple[int, int]]
    ) -> tuple[GroupLag, ...]:
        """Return the lag of every group except those that are gone, sorted by name.

        `partitions` has the IDs by topic, None for a topic that could not be read; `ends` are start and end of each
        partition.
        """
        absent = self.absent
        lags = [GroupLag(name, (), complete=False) for name in (absent | self.lost_queries) - self.gone]
        for name in self.commits.keys() - absent:
            described = self.described.get(name)
            complete = described is not None or name not in self.asked
            lags.append(group_lag(name, described, self.commits[name], partitions, ends, complete=complete))
        return tuple(sorted(lags, key=lambda one: one.group))


def group_lag(
    group: str,
    described: Described | None,
    commits: Commits,
    partitions: Mapping[str, list[int] | None],
    known: Mapping[PartitionId, tuple[int, int]],
    *,
    complete: bool,
) -> GroupLag:
    """Return a group's lag. `partitions` has the IDs by topic, None for a topic that could not be read.

    A partition is unread if its start or end is not `known`, or its committed offset could not be read. If not
    `complete`, the description of the group was requested but not received.
    """
    assigned: set[PartitionId] = set().union(*(described.assigned if described else ()))
    own = assigned | commits.offsets.keys() | commits.unread
    topics = {topic for topic, _ in own}
    listed = {(topic, partition) for topic in topics for partition in partitions.get(topic) or ()}
    without_answer = {topic for topic in topics if topic in partitions and partitions[topic] is None}
    read = {
        place
        for place in listed & known.keys()
        if place not in commits.unread and (commits.complete or place in commits.offsets)
    }
    return GroupLag(
        group,
        tuple(
            partition_lag(*place, start=known[place][0], end=known[place][1], committed=commits.offsets.get(place))
            for place in sorted(read)
        ),
        None if described is None else len(described.assigned),
        "" if described is None else described.state,
        frozenset((listed | {place for place in own if place[0] in without_answer}) - read),
        complete=complete and commits.complete and not without_answer,
    )
