"""The lag of partitions and groups, computed from offsets. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

LAG = "tallystream.lag"
"""The measurement of lag in the store."""

PartitionId = tuple[str, int]
"""A topic and a partition."""

QUERY = "ledger:"
"""The prefix of a group's name that is a query in the ledger without a consumer group."""


@dataclass(frozen=True, slots=True)
class Behind:
    """The next offset that the group will read is `committed`; the lag is `records`, 0 or more."""

    committed: int
    records: int


@dataclass(frozen=True, slots=True)
class NothingCommitted:
    """The group has no committed offset in this partition, so its lag is not known."""


@dataclass(frozen=True, slots=True)
class BeyondEnd:
    """The committed offset is past the partition's end: the log was truncated or the topic was recreated.

    The group will skip or repeat records, which a lag of 0 would hide.
    """

    committed: int


Progress = Behind | NothingCommitted | BeyondEnd


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The lag of one group in one partition. The log has the offsets `start` (inclusive) to `end` (exclusive)."""

    topic: str
    partition: int
    start: int
    end: int
    progress: Progress

    @property
    def lag(self) -> int | None:
        """The number of records after the committed offset; None if it is not known."""
        return self.progress.records if isinstance(self.progress, Behind) else None


@dataclass(frozen=True, slots=True)
class Total:
    """The lag of several partitions: `records` over the `known` ones. The lag of `unknown` partitions is missing."""

    records: int
    known: int
    unknown: int


@dataclass(frozen=True, slots=True)
class GroupLag:
    """All partitions of one consumer group at one moment.

    `members` is None and `state` empty if the broker did not report them; `state` is Kafka's, such as "Stable".
    `unread` are partitions that could not be read. If not `complete`, there may be partitions that are not known.
    """

    group: str
    partitions: tuple[PartitionLag, ...]
    members: int | None = None
    state: str = ""
    unread: frozenset[tuple[str, int]] = frozenset()
    complete: bool = True

    def total(self) -> Total:
        """Return the sum of the known lags, and the numbers of partitions with and without a known lag."""
        known = [partition.lag for partition in self.partitions if partition.lag is not None]
        return Total(sum(known), len(known), len(self.partitions) - len(known))


def partition_lag(topic: str, partition: int, *, start: int, end: int, committed: int | None) -> PartitionLag:
    """Return the lag of one partition: `end` - `committed`, as in Kafka's own tools.

    `end` must have been read after `committed`. In the other order, a consumer that commits between the two reads seems
    to be past the end. In this order the end can only have grown, so the lag may be a little too high but is never
    negative. Therefore a commit past the end is not a race, and has its own type.

    Records that retention deleted before they were read (`committed` < `start`) count as lag. Otherwise the lag of a
    group would fall when it loses records.
    """
    if committed is None:
        return PartitionLag(topic, partition, start, end, NothingCommitted())
    if committed > end:
        return PartitionLag(topic, partition, start, end, BeyondEnd(committed))
    return PartitionLag(topic, partition, start, end, Behind(committed, end - committed))


@dataclass(frozen=True, slots=True)
class Round:
    """The results of one round.

    `groups` are all groups that are watched, including those that could not be read. `gone` are known groups that do
    not exist according to the broker, and known queries that the ledger no longer has. A group is not gone only because
    a listing does not have it. `problems` are sentences, sorted. `places` has the start and the end of every partition
    that was read. The ends were requested at `requested_ms` and answered at `ts_ms` (epoch ms), which is the time of
    the round. If not `complete`, a broker did not answer the listing, so there may be groups that are not known.
    """

    groups: tuple[GroupLag, ...]
    problems: tuple[str, ...] = ()
    gone: frozenset[str] = frozenset()
    places: Mapping[PartitionId, tuple[int, int]] = field(default_factory=dict)
    requested_ms: int = 0
    ts_ms: int = 0
    complete: bool = True


class Probed(NamedTuple):
    """The timestamp (epoch ms) of the next record at or after an offset; `nothing`: there is none up to the end."""

    timestamp_ms: int | None
    nothing: bool = False
