"""What one round found, and how a group's lag is put together from the broker's answers. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from tallystream.dashboards.lag.model import GroupLag, Place, partition_lag

if TYPE_CHECKING:
    from collections.abc import Mapping

QUERY = "ledger:"
"""What the name of a group begins with that the ledger alone knows: a query without a consumer group."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one round found.

    `groups` are all groups that are watched, those that could not be read among them; `gone` are known groups of which
    the broker said that they do not exist. A group is gone only by such an answer, never because it is missing from a
    listing. `problems` are sentences, sorted. `places` has start and end of every partition that was read. The ends
    were asked for at `asked_ms` and answered at `ts_ms` (epoch ms), which is the time of the round. Not `complete`: a
    broker did not answer the listing, so there may be groups of which nothing is known.
    """

    groups: tuple[GroupLag, ...]
    problems: tuple[str, ...] = ()
    gone: frozenset[str] = frozenset()
    places: Mapping[Place, tuple[int, int]] = field(default_factory=dict)
    asked_ms: int = 0
    ts_ms: int = 0
    complete: bool = True


DEAD = "Dead"
"""The state of a group that does not exist, or is of a type that the client cannot describe."""


class Described(NamedTuple):
    """A group as the broker describes it: what each member has in hand, and the broker's word for its state."""

    assigned: list[set[Place]]
    state: str


class Commits(NamedTuple):
    """The offsets of a group; those of `unread` partitions had an error. Not `complete`: there was no answer."""

    offsets: dict[Place, int]
    unread: frozenset[Place] = frozenset()
    complete: bool = True

    def ahead(self, written: Mapping[Place, int]) -> Commits:
        """Return the offsets of both sources: the further one of each partition."""
        further = {place: max(offset, self.offsets.get(place, 0)) for place, offset in written.items()}
        return self._replace(offsets={**self.offsets, **further}, unread=self.unread - further.keys())


NONE = Commits({})
UNREAD = Commits({}, complete=False)


def group_lag(
    group: str,
    described: Described | None,
    commits: Commits,
    partitions: Mapping[str, list[int] | None],
    known: Mapping[Place, tuple[int, int]],
    *,
    complete: bool,
) -> GroupLag:
    """Return a group's lag. `partitions` has the IDs by topic, None for a topic that could not be read.

    A partition is unread where its start or end is not `known`, or its commit could not be read. Not `complete`: there
    was no description, though one was asked for.
    """
    assigned: set[Place] = set().union(*(described.assigned if described else ()))
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
