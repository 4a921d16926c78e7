"""What the loop needs of Kafka, as protocols. `stream.kafka` is Kafka itself; the simulation has a broker in memory.

A `Broker` is the access of one task to one cluster. While a broker does not answer, a call blocks for a limited time:
30 s for `Broker.writer`, which waits for the transaction that it ends, 10 s for the others. A stop ends the wait within
about a second or two. `Source.read` returns after its own time limit.

Every call may also raise RejectedError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from tallystream.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"


Positions = dict[Place, int]
"""The next offset to read of each partition. Transaction markers take offsets, so it may be above the last record's."""

RawRecord = tuple[int, int, bytes | None, bytes | None]
"""(offset, append time in epoch ms, key, value) of a record."""


class OffsetAndEpoch(NamedTuple):
    """The offset of a record, and the epoch of the leader that appended it."""

    offset: int
    epoch: int


class Chunk(NamedTuple):
    """Consecutive records of a partition, in offset order, and the position after them. `rows` may be empty.

    `epoch_ends` are the last records of each leader's epoch, without those whose epoch is unknown.
    """

    place: Place
    rows: Sequence[RawRecord]
    end: int
    epoch_ends: Sequence[OffsetAndEpoch] = ()


class Output(NamedTuple):
    """A record to be written. A null value deletes the key."""

    place: Place
    key: bytes | None
    value: bytes | None


class Bounds(NamedTuple):
    """The offsets of a partition: the first record, the end of what no open transaction holds back, and the end."""

    first: int
    stable: int
    end: int


BEGIN_ANEW = "begin a new table: delete the topics metrics-table, metrics-agg and metrics-shards, and start again"
PUBLISH_AGAIN = "run tallystream rebuild without options, which publishes all sums again"
"""Remedies, for which a person must decide."""


class StoppedError(Exception):
    """A stop was requested."""


class BrokerError(TallystreamError):
    """A call failed, and its effect is unknown. A new writer, and a restart from what is published, mend it."""


class UnavailableError(BrokerError):
    """No broker answered in time. It may be an outage, or a transaction that is too large for the time."""


class FencedError(TallystreamError):
    """Another writer has taken the transactional ID. This one must end for good: it never opens a writer again.

    The error is the same if the broker has ended its transaction because it was open for 30 s, as after a pause.
    """


class RejectedError(TallystreamError):
    """Kafka rejects it, and only a person can change that: a permission is missing, or a limit is too low."""


class LostRecordsError(TallystreamError):
    """Records before or at `position`, the next one to read, are gone.

    `first` is the first one that can be read instead. It is None if the log was truncated after it was read, at
    `truncated_at` or at its end: other records have, or will have, the offsets from there on.
    """

    def __init__(self, place: Place, position: int, bounds: Bounds, truncated_at: int | None = None) -> None:
        self.place, self.position, self.bounds = place, position, bounds
        if truncated_at is None and position > bounds.end:
            truncated_at = bounds.end
        self.truncated_at = truncated_at
        self.first = bounds.first if truncated_at is None else None
        if truncated_at is None:
            problem = (
                f"it has offsets {bounds.first} to {bounds.end}, and {position} is the next to read, so records were "
                "deleted before they were read; to continue without them: --on-data-loss continue, or "
            )
        else:
            lost = lost_offsets(truncated_at, position)
            problem = f"it {lost} after they were read, so sums include records that are gone; "
        super().__init__(f"topic {place.topic}, partition {place.partition}: {problem}{BEGIN_ANEW}.")


def lost_offsets(truncated_at: int, position: int) -> str:
    """Return what happened to a partition that was truncated at an offset, and had been read up to a position."""
    return f"lost the offsets {truncated_at} to {position - 1}, as by an unclean leader election,"


class Source(Protocol):
    """Reads partitions from given positions. It joins no group."""

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read exactly these partitions from these positions on. What was fetched before is dropped."""

    def read(self, max_records: int, timeout_s: float) -> list[Chunk]:
        """Return what is there: up to `max_records` records, one chunk for each partition that moved.

        If nothing is there, wait for up to `timeout_s` seconds for a first record. Nothing is there, either, while no
        broker can be reached, and often when the topic or the partition is gone: ask `Broker.partitions` and
        `Broker.topic_ids`. After an error, call `assign` before the next `read`: records may have been dropped.

        Raises:
            LostRecordsError: a position is out of range. The leader says so.
            BrokerError: the broker rejects the request, or does not know the partition now.
        """

    def close(self) -> None:
        """Release the connections."""


class Writer(Protocol):
    """Writes transactions with one transactional ID."""

    def commit(self, records: Iterable[Output]) -> None:
        """Write these records in one transaction, and return when it is committed.

        The partitions show it one after the other, soon after. After an error the writer must not be used again.

        Raises:
            FencedError: another writer has the transactional ID.
            UnavailableError: it timed out.
            BrokerError: it failed. The transaction may be visible now, or later until a writer opens. One reason is a
                record that is too large for the broker: a smaller step may have smaller records.
        """

    def abort(self, places: Collection[Place]) -> None:
        """Abort a transaction in these partitions, and what earlier writers have left open there.

        Raises:
            FencedError, UnavailableError, BrokerError: as `commit`.
        """

    def close(self) -> None:
        """Release the connections. An open transaction stays until another writer opens, or until it times out."""


class Broker(Protocol):
    """Access to one cluster."""

    def writer(self, transactional_id: str) -> Writer:
        """Fence all earlier writers with this ID, end their transaction, and return a new one.

        Raises:
            FencedError: another writer with this ID was opened at the same time.
            BrokerError: the broker did not answer in time.
        """

    def source(self, *, committed: bool = False) -> Source:
        """Return a source without partitions. It reads records of open transactions, too, unless `committed`."""

    def partitions(self) -> dict[str, Collection[int]]:
        """Return the partitions that exist now of the topics that the table reads: topic → partitions.

        A topic that was created a moment ago may be missing, here and in the answers of the calls below.

        Raises:
            ConfigError: a topic has no append times of the broker.
            BrokerError: the broker did not answer in time.
        """

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the IDs of those of these topics that exist. A topic that is created again has another one.

        Raises:
            BrokerError: the broker did not answer in time.
        """

    def bounds(self, places: Collection[Place]) -> dict[Place, Bounds]:
        """Return the bounds of those of these partitions that exist.

        Raises:
            BrokerError: the broker did not answer in time.
        """


def bounds_of(broker: Broker, place: Place) -> Bounds:
    """Return the bounds of a partition.

    Raises:
        BrokerError: the broker did not answer in time, or does not know the partition now.
    """
    bounds = broker.bounds([place]).get(place)
    if bounds is None:
        raise unknown(place)
    return bounds


def unknown(place: Place) -> BrokerError:
    """Return the error of a partition that a broker does not know: it may have just started."""
    return BrokerError(
        f"topic {place.topic}: it has no partition {place.partition} now; if that lasts, create it, or if it was "
        f"deleted, {BEGIN_ANEW}."
    )
