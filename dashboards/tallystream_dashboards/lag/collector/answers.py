"""The answers of brokers in one round, and the offsets of each group by them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tallystream_dashboards.lag.offsets import Bounds, GroupOffsets, PartitionId, PartitionOffsets

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

DEAD = "Dead"
"""The state of a group that does not exist, or is of a type that the client cannot describe."""

STABLE = "Stable"
"""The state of a group whose members have their partitions, as opposed to one that divides them among members."""


class GroupDescription(NamedTuple):
    """A group as the broker describes it: the partitions that each member is assigned, and the group's state."""

    assigned: list[set[PartitionId]]
    state: str


class CommittedOffsets(NamedTuple):
    """The committed offsets of a group. `unread` partitions had an error. If not `complete`, there was no answer."""

    offsets: dict[PartitionId, int]
    unread: frozenset[PartitionId] = frozenset()
    complete: bool = True


NOTHING_COMMITTED = CommittedOffsets({})
NO_ANSWER = CommittedOffsets({}, complete=False)


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers about the groups of a round.

    Args:
        listed: the groups that brokers list.
        complete: whether every broker answered the listing.
        requested: the groups that were requested by name: the listed ones and those of earlier rounds.
        descriptions: the groups whose description was received.
        committed: the offsets of every group that was requested.
    """

    listed: AbstractSet[str]
    complete: bool
    requested: AbstractSet[str]
    descriptions: Mapping[str, GroupDescription]
    committed: Mapping[str, CommittedOffsets]

    @property
    def topics(self) -> set[str]:
        """The topics in which a group has an assigned partition or an offset."""
        assigned = (partitions for one in self.descriptions.values() for partitions in one.assigned)
        committed = ((*one.offsets, *one.unread) for one in self.committed.values())
        return {topic for partitions in (*assigned, *committed) for topic, _ in partitions}

    @property
    def deleted(self) -> frozenset[str]:
        """The groups that no longer exist: none after an incomplete listing."""
        return frozenset(self._missing_groups if self.complete else ())

    @property
    def _missing_groups(self) -> set[str]:
        """The groups that no broker listed and that do not exist according to their coordinators."""
        return {
            name
            for name in self.requested - self.listed
            if name in self.descriptions
            and self.descriptions[name].state == DEAD
            and self.committed[name] == NOTHING_COMMITTED
        }

    def groups(
        self, partitions: Mapping[str, list[int] | None], bounds: Mapping[PartitionId, Bounds]
    ) -> tuple[GroupOffsets, ...]:
        """Return the offsets of every group except those that are deleted, sorted by name.

        `partitions` has the IDs by topic, None for a topic that could not be read; `bounds` has the partitions whose
        start and end could be read.
        """
        missing = self._missing_groups
        unread = missing - self.deleted
        groups = [GroupOffsets(name, (), complete=False) for name in unread]
        groups += [self._group(name, partitions, bounds) for name in self.committed.keys() - missing]
        return tuple(sorted(groups, key=lambda one: one.group))

    def _group(
        self, name: str, partitions: Mapping[str, list[int] | None], bounds: Mapping[PartitionId, Bounds]
    ) -> GroupOffsets:
        description, committed = self.descriptions.get(name), self.committed[name]
        assigned: set[PartitionId] = set().union(*(description.assigned if description else ()))
        used = assigned | committed.offsets.keys() | committed.unread
        topics = {topic for topic, _ in used}
        has_members = description is not None and description.state == STABLE and bool(assigned)
        left = topics - {topic for topic, _ in assigned} if has_members else set()
        unread_topics = {topic for topic in topics if topic in partitions and partitions[topic] is None}
        existing = {(topic, number) for topic in topics for number in partitions.get(topic) or ()}
        read = {
            partition
            for partition in existing & bounds.keys()
            if partition not in committed.unread and (committed.complete or partition in committed.offsets)
        }
        return GroupOffsets(
            name,
            tuple(
                PartitionOffsets(*one, *bounds[one], committed.offsets.get(one), left=one[0] in left)
                for one in sorted(read)
            ),
            None if description is None else len(description.assigned),
            "" if description is None else description.state,
            frozenset((existing | {one for one in used if one[0] in unread_topics}) - read),
            complete=description is not None and committed.complete and not unread_topics,
        )
