"""The offsets that one round reads from the broker, by group and partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PartitionId = tuple[str, int]
"""A topic and the number of a partition."""

Bounds = tuple[int, int]
"""The offsets of a partition's log: start (inclusive) and end (exclusive)."""


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """The offsets of one group in one partition. The next record that the group will read is at `committed`.

    `committed` is None if nothing is committed. The log has the offsets `start` (inclusive) to `end` (exclusive).
    `left`: the group's members have partitions, but none of this topic.
    """

    topic: str
    partition: int
    start: int
    end: int
    committed: int | None
    left: bool = False

    @property
    def id(self) -> PartitionId:
        """The topic and the partition."""
        return self.topic, self.partition

    @property
    def lag(self) -> int | None:
        """The number of records after the committed offset, `end` - `committed`, as in Kafka's own tools.

        Records that retention deleted before they were read count as lag. Otherwise the lag of a group would fall when
        it loses records. The lag is None if nothing is committed, or if the committed offset is past the end: the log
        was truncated or the topic was recreated, which a lag of 0 would hide.
        """
        if self.committed is None or self.committed > self.end:
            return None
        return self.end - self.committed

    @property
    def deleted(self) -> int:
        """The number of offsets that retention deleted before the group read them."""
        return 0 if self.committed is None else max(0, self.start - self.committed)


@dataclass(frozen=True, slots=True)
class GroupOffsets:
    """The offsets of one consumer group at one moment.

    `members` is None and `state` empty if the broker did not report them; `state` is Kafka's, such as "Stable".
    `unread` are partitions that could not be read. If not `complete`, there may be partitions that are not known.
    """

    group: str
    partitions: tuple[PartitionOffsets, ...]
    members: int | None = None
    state: str = ""
    unread: frozenset[PartitionId] = frozenset()
    complete: bool = True


@dataclass(frozen=True, slots=True)
class RoundOffsets:
    """The offsets of all groups that one round read.

    `groups` are all groups that are collected, including those that could not be read. `deleted` are known groups that
    do not exist according to the broker. A group that is only missing from a listing is not deleted. `problems` are
    sentences, sorted. `bounds` has every partition that was read. The ends were
    answered at `ts_ms` (epoch ms), which is the time of the round.
    """

    groups: tuple[GroupOffsets, ...]
    problems: tuple[str, ...] = ()
    deleted: frozenset[str] = frozenset()
    bounds: Mapping[PartitionId, Bounds] = field(default_factory=dict)
    ts_ms: int = 0
