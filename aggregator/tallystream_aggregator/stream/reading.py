"""Reads the committed records of one partition between two offsets: all of them, or backwards from the end.

Finds what a log has lost after it was read.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import closing
from typing import TYPE_CHECKING

from tallystream_aggregator.stream.broker import (
    Bounds,
    BrokerError,
    LostRecordsError,
    Mark,
    StoppedError,
    bounds_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tallystream_aggregator.stream.broker import Broker, Place, RawRecord, Source

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


def cuts(broker: Broker, marks: Mapping[Place, Mark], stopped: Callable[[], bool] = lambda: False) -> dict[Place, int]:
    """Return the partitions whose log has other records, or none, up to its mark, and from which offset on.

    Kafka never changes a record, so one of a later leader before the mark, or none yet, tells of an unclean election.
    What can't be known any more, because the mark's record was deleted, is taken for the same. A leader that was
    isolated may have an older end for some seconds, so a log without the mark's record is looked at for as long.

    Raises:
        StoppedError: a stop was requested.
        BrokerError: the broker did not answer in time.
    """
    found: dict[Place, int] = {}
    with closing(broker.source()) as source:
        bounds = broker.bounds(marks.keys())
        kept = {place: marks[place].offset for place, of in bounds.items() if of.first <= marks[place].offset}
        firsts = _first_marks(source, {place: at for place, at in kept.items() if at < bounds[place].end}, stopped)
        for place, at in kept.items():
            mark = marks[place]
            if place in firsts and not _is_later(firsts[place], mark):
                continue
            if place not in firsts and not _is_gone(broker, source, place, at, stopped):
                raise BrokerError(f"{place} sends nothing from {at} on.")

            def is_other(offset: int, place: Place = place, mark: Mark = mark) -> bool:
                return _is_later(_first_marks(source, {place: offset}, stopped).get(place), mark)

            first, _, end = bounds_of(broker, place)
            found[place] = bisect_left(range(min(at, end)), True, lo=min(first, at, end), key=is_other)
    return found


def _is_gone(broker: Broker, source: Source, place: Place, offset: int, stopped: Callable[[], bool]) -> bool:
    """Return whether a log ends before a record, and still does after a while."""
    source.assign({})
    for _ in range(MAX_EMPTY_READS):
        if bounds_of(broker, place).end > offset:
            return False
        if stopped():
            raise StoppedError
        source.read(1, READ_S)  # waits
    return True


def _is_later(first: Mark | None, mark: Mark) -> bool:
    return first is not None and first.offset <= mark.offset and first.epoch > mark.epoch


def _first_marks(source: Source, offsets: Mapping[Place, int], stopped: Callable[[], bool]) -> dict[Place, Mark | None]:
    """Return each partition's first record at or after an offset, as a mark, and None if its epoch is unknown.

    Partitions that send nothing are missing. All are read together: alone, each that is idle would take half a second.
    """
    found: dict[Place, Mark | None] = {}
    left, empty = dict(offsets), 0
    source.assign(left)
    while left and empty < MAX_EMPTY_READS:
        if stopped():
            raise StoppedError
        try:
            chunks = source.read(READ_AT_ONCE, READ_S)
        except LostRecordsError as error:
            left.pop(error.place, None)
            if error.first is not None:  # deleted meanwhile
                found[error.place] = None
            chunks = []
            source.assign(left)
        new = [chunk for chunk in chunks if left.pop(chunk.place, None) is not None]
        for chunk in new:
            found[chunk.place] = Mark(chunk.rows[0][0], chunk.marks[0].epoch) if chunk.marks else None
        empty = 0 if new else empty + 1
        if chunks and not new:
            source.assign(left)  # no more from those that go on
    return found
