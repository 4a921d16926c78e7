"""What brokers answer about a group in one round, and the group's offsets by it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tallystream_dashboards.lag.offsets import Bounds, GroupOffsets, PartitionId, PartitionOffsets

if TYPE_CHECKING:
    from collections.abc import Mapping

DEAD = "Dead"
"""The state of a group that does not exist, or is of a type that the client cannot describe."""

STABLE = "Stable"
"""The state of a group whose members have their partitions, as opposed to one that divides them among members."""


class GroupAnswers(NamedTuple):
    """The answers about a group: its description, and its committed offsets.

    `assigned` has the partitions of each member; it is None, and `state` empty, without a description. `unread`
    partitions had an error. If the offsets are not `complete`, there was no answer about them.
    """

    assigned: tuple[frozenset[PartitionId], ...] | None = None
    state: str = ""
    offsets: Mapping[PartitionId, int] = {}
    unread: frozenset[PartitionId] = frozenset()
    complete: bool = False

    @property
    def missing(self) -> bool:
        """Whether the group does not exist according to its coordinator."""
        return self.state == DEAD and self.complete and not self.offsets and not self.unread

    @property
    def used(self) -> set[PartitionId]:
        """The partitions that a member has, or with an offset."""
        return set().union(*(self.assigned or ()), self.offsets, self.unread)


def group_offsets(
    name: str,
    answers: GroupAnswers,
    partitions: Mapping[str, list[int] | None],
    bounds: Mapping[PartitionId, Bounds],
) -> GroupOffsets:
    """Return the offsets of a group.

    `partitions` has the IDs by topic, None for a topic that could not be read; `bounds` has the partitions whose start
    and end could be read.
    """
    topics = {topic for topic, _ in answers.used}
    assigned_topics = {topic for member in answers.assigned or () for topic, _ in member}
    left = topics - assigned_topics if answers.state == STABLE and assigned_topics else set()
    unread_topics = {topic for topic in topics if topic in partitions and partitions[topic] is None}
    existing = {(topic, number) for topic in topics for number in partitions.get(topic) or ()}
    read = {
        partition
        for partition in existing & bounds.keys()
        if partition not in answers.unread and (answers.complete or partition in answers.offsets)
    }
    return GroupOffsets(
        name,
        tuple(
            PartitionOffsets(*one, *bounds[one], answers.offsets.get(one), left=one[0] in left) for one in sorted(read)
        ),
        None if answers.assigned is None else len(answers.assigned),
        answers.state,
        frozenset((existing | {one for one in answers.used if one[0] in unread_topics}) - read),
        complete=answers.assigned is not None and answers.complete and not unread_topics,
    )
