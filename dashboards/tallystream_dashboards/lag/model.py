"""What lag is: pure values, worked out from offsets. Offsets count records of one partition, from 0."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

LAG = "tallystream.lag"
"""The measurement under which lag is kept."""

PartitionId = tuple[str, int]
"""A topic and a partition."""

QUERY = "ledger:"
"""What the name of a group begins with that the ledger alone knows: a query without a consumer group."""


@dataclass(frozen=True, slots=True)
class Behind:
    """The next offset that the group will read is `committed`; `records` come after it, 0 when it is up to date."""

    committed: int
    records: int


@dataclass(frozen=True, slots=True)
class NothingCommitted:
    """The group has no committed offset in this partition, so nobody can say how far behind it is: least of all 0."""


@dataclass(frozen=True, slots=True)
class BeyondEnd:
    """The committed offset lies past the partition's end: the log was truncated or the topic made again.

    The group will skip or repeat records; calling that a lag of 0 would hide it.
    """

    committed: int


Progress = Behind | NothingCommitted | BeyondEnd


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """One partition as one group sees it: the log holds offsets `start` (inclusive) to `end` (exclusive)."""

    topic: str
    partition: int
    start: int
    end: int
    progress: Progress

    @property
    def lag(self) -> int | None:
        """The records after the committed offset, or None where that is not known."""
        return self.progress.records if isinstance(self.progress, Behind) else None


@dataclass(frozen=True, slots=True)
class Total:
    """The lag of several partitions: `records` over the `known` ones; of `unknown` ones there is no lag to add."""

    records: int
    known: int
    unknown: int


@dataclass(frozen=True, slots=True)
class GroupLag:
    """All partitions of one consumer group, at one moment.

    `members` is None and `state` empty where the broker did not tell; `state` is the broker's word, as in "Stable".
    `unread` are partitions that could not be read. Not `complete`: there may be others that are not known.
    """

    group: str
    partitions: tuple[PartitionLag, ...]
    members: int | None = None
    state: str = ""
    unread: frozenset[tuple[str, int]] = frozenset()
    complete: bool = True

    def total(self) -> Total:
        """Add up the partitions whose lag is known, and count those whose lag is not."""
        known = [partition.lag for partition in self.partitions if partition.lag is not None]
        return Total(sum(known), len(known), len(self.partitions) - len(known))


def partition_lag(topic: str, partition: int, *, start: int, end: int, committed: int | None) -> PartitionLag:
    """Work out the lag of one partition: `end` - `committed`, as Kafka's own tools do.

    `end` must have been read after `committed`. Read the other way round, a busy consumer commits between the two reads
    and seems to be past the end; in this order the end can only have grown, and the lag is at worst a little too high,
    never negative. A commit that is past the end all the same is no race but a fact, and gets its own type.

    Records that retention deleted before they were read (`committed` < `start`) count as lag: a group that loses
    records must not look better than one that reads them.
    """
    if committed is None:
        return PartitionLag(topic, partition, start, end, NothingCommitted())
    if committed > end:
        return PartitionLag(topic, partition, start, end, BeyondEnd(committed))
    return PartitionLag(topic, partition, start, end, Behind(committed, end - committed))


@dataclass(frozen=True, slots=True)
class Round:
    """What one round found.

    `groups` are all groups that are watched, those that could not be read among them; `gone` are known groups of which
    the broker said that they do not exist. A group is gone only by such an answer, never because it is missing from a
    listing. `problems` are sentences, sorted. `places` has start and end of every partition that was read. The ends
    were asked for at `requested_ms` and answered at `ts_ms` (epoch ms), which is the time of the round. Not `complete`:
    a broker did not answer the listing, so there may be groups of which nothing is known.
    """

    groups: tuple[GroupLag, ...]
    problems: tuple[str, ...] = ()
    gone: frozenset[str] = frozenset()
    places: Mapping[PartitionId, tuple[int, int]] = field(default_factory=dict)
    requested_ms: int = 0
    ts_ms: int = 0
    complete: bool = True


class Probed(NamedTuple):
    """What a reader at an offset finds: the next record's timestamp (epoch ms), or that there is none to the end."""

    timestamp_ms: int | None
    nothing: bool = False
