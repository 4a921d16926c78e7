"""Reads the committed records of one partition between two offsets: all of them, or backwards from the end.

Finds what a log has lost after it was read.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import closing
from typing import TYPE_CHECKING

from tallystream_aggregator.stream.broker import Bounds, BrokerError, LostRecordsError, StoppedError, bounds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tallystream_aggregator.stream.broker import Broker, Mark, Place, RawRecord, Source

READ_AT_ONCE = 50_000
"""How many records are read at a time. Between two reads a stop is noticed."""

READ_S = 0.1
MAX_EMPTY_READS = 100
"""So many reads that find nothing, one after the other, are an error: the records are there."""

FIRST_READ = 64
"""How many offsets at the end of a partition are searched first."""


def read_range(
    broker: Broker,
    place: Place,
    bounds: Bounds,
    stopped: Callable[[], bool] = lambda: False,
    *,
    committed: bool = True,
) -> Iterator[RawRecord]:
    """Yield the records of a partition from its first offset to its stable end, as in `bounds`, or else to its end.

    Without `committed`, those of transactions that are open or were aborted are among them.

    Raises:
        StoppedError: a stop was requested.
        BrokerError: the broker did not answer in time, or does not know the partition, or records were deleted
            meanwhile.
    """
    at, end, empty = bounds.first, bounds.stable if committed else bounds.end, 0
    with closing(broker.source(committed=committed)) as source:
        source.assign({place: at})
        while at < end:
            if stopped():
                raise StoppedError
            try:
                chunks = source.read(READ_AT_ONCE, READ_S)
            except LostRecordsError as error:
                raise BrokerError(
                    f"topic {place.topic}, partition {place.partition}: the records from offset {at} on were deleted "
                    f"before they were read; it has {error.bounds} now. Try again; if that fails too, raise the "
                    "topic's retention.ms."
                ) from error
            if not chunks:
                empty += 1
                # Also an outage ends the wait here. Without its end, an older record would be taken for the newest one.
                found = broker.bounds([place]).get(place)
                now = -1 if found is None else found.stable if committed else found.end
                if now < end or empty == MAX_EMPTY_READS:
                    raise BrokerError(f"{place} sends nothing from {at} to its end of {end}; it has {found} now.")
            for chunk in chunks:
                at, empty = chunk.end, 0
                yield from chunk.rows if at <= end else [row for row in chunk.rows if row[0] < end]


def committed_records(broker: Broker, place: Place, stopped: Callable[[], bool] = lambda: False) -> Iterator[RawRecord]:
    """Yield the committed records of a partition up to what is its end now.

    Compaction leaves few of the offsets, so they are not asked for range by range.

    Raises:
        StoppedError, BrokerError: as `read_range`.
    """
    yield from read_range(broker, place, bounds_of(broker, place), stopped)


def backwards(broker: Broker, place: Place, bounds: Bounds, *, committed: bool = True) -> Iterator[list[RawRecord]]:
    """Yield records in ranges of offsets, the last range first. Each is twice as large as the one before.

    Aborted records and markers may fill any part of the end. Without `committed`, aborted and open ones are yielded.

    Raises:
        BrokerError: the broker did not answer in time, or does not know the partition.
    """
    end, size = bounds.stable if committed else bounds.end, FIRST_READ
    while end > bounds.first:
        begin = max(bounds.first, end - size)
        yield list(read_range(broker, place, Bounds(begin, end, end), committed=committed))
        end, size = begin, 2 * size


def cuts(broker: Broker, marks: Mapping[Place, Mark]) -> dict[Place, int]:
    """Return the partitions whose log has other records, or none, up to its mark, and from which offset on.

    Kafka never changes a record, so one of a later leader before the mark, or none yet, tells of an unclean election.
    What can't be known any more, because the mark's record was deleted, is taken for the same.

    Raises:
        LostRecordsError: a log was cut off at this moment.
        BrokerError: the broker did not answer in time.
    """
    found: dict[Place, int] = {}
    with closing(broker.source()) as source:
        for place, bounds in broker.bounds(marks.keys()).items():
            cut = _cut(source, place, bounds, marks[place])
            if cut is not None:
                found[place] = cut
    return found


def _cut(source: Source, place: Place, bounds: Bounds, mark: Mark) -> int | None:
    if mark.offset < bounds.first:
        return None

    def is_later(offset: int) -> bool:
        found = _first_mark(source, place, offset)
        return found is not None and found.offset <= mark.offset and found.epoch > mark.epoch

    try:
        if mark.offset >= bounds.end or is_later(mark.offset):
            return bisect_left(range(min(mark.offset, bounds.end)), True, lo=bounds.first, key=is_later)
    except LostRecordsError as error:
        if error.first is None:
            raise
    return None


def _first_mark(source: Source, place: Place, offset: int) -> Mark | None:
    """Return the mark of the first record at or after an offset, None if there is none, or its epoch is unknown."""
    source.assign({place: offset})
    for _ in range(MAX_EMPTY_READS):
        for chunk in source.read(1, READ_S):
            return chunk.marks[0] if chunk.marks else None
    raise BrokerError(f"{place} sends nothing from {offset} on.")
