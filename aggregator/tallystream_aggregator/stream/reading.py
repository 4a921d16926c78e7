"""Reads the committed records of one partition between two offsets: all of them, or backwards from the end."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from tallystream_aggregator.stream.broker import Bounds, BrokerError, LostRecordsError, StoppedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tallystream_aggregator.stream.broker import Broker, Place, RawRecord

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
