"""Reads the committed records of one partition between two offsets: all of them, or backwards from the end."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from tallystream_aggregator.stream.broker import BrokerError, LostRecordsError, StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tallystream_aggregator.stream.broker import Bounds, Broker, Place, RawRecord

READ_AT_ONCE = 50_000
"""How many records are read at a time. Between two reads a stop is noticed."""

READ_S = 0.1
MAX_EMPTY_READS = 100
"""So many reads that find nothing, one after the other, are an error: the records are there."""

FIRST_READ = 64
"""How many offsets at the end of a partition are searched first."""


def committed_records(
    broker: Broker, place: Place, stopped: Callable[[], bool] = lambda: False, bounds: Bounds | None = None
) -> Iterator[RawRecord]:
    """Yield the committed records of a partition within these bounds, by default up to what is its end now.

    Compaction leaves few of the offsets, so they are not asked for range by range.

    Raises:
        StoppedError: a stop was requested.
        BrokerError: the broker did not answer in time, or does not know the partition, or records were deleted
            meanwhile.
    """
    known = bounds or broker.bounds([place]).get(place)
    if known is None:
        raise BrokerError(f"topic {place.topic}: the partition {place.partition} is not known now.")
    at, end, empty = known.first, known.stable, 0
    with closing(broker.source(committed=True)) as source:
        source.assign({place: at})
        while at < end:
            if stopped():
                raise StoppedError
            try:
                chunks = source.read(READ_AT_ONCE, READ_S)
            except LostRecordsError as error:
                raise BrokerError(str(error)) from error
            if not chunks:
                empty += 1
                # Also an outage ends the wait here. Without its end, an older record would be taken for the newest one.
                found = broker.bounds([place]).get(place)
                if found is None or found.stable < end or empty == MAX_EMPTY_READS:
                    raise BrokerError(f"{place} sends nothing from {at} to its end of {end}; it has {found} now.")
            for chunk in chunks:
                at, empty = chunk.end, 0
                yield from (row for row in chunk.rows if row[0] < end)


def backwards(broker: Broker, place: Place, bounds: Bounds) -> Iterator[list[RawRecord]]:
    """Yield the committed records in ranges of offsets, the last range first. Each is twice as large as the one before.

    Aborted records and markers may fill any part of the end.

    Raises:
        BrokerError: the broker did not answer in time, or does not know the partition.
    """
    end, size = bounds.stable, FIRST_READ
    while end > bounds.first:
        begin = max(bounds.first, end - size)
        yield list(committed_records(broker, place, bounds=bounds._replace(first=begin, stable=end)))
        end, size = begin, 2 * size
