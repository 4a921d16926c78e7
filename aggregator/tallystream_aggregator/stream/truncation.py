"""Log truncation: what a partition has lost after it was read, as by an unclean leader election (KIP-320).

Kafka never changes a record, and the epochs of its leaders never fall along a log. So as long as the last record that
was read is there with its epoch, all before it are those that were read.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import closing
from typing import TYPE_CHECKING

from tallystream_aggregator.stream.broker import BrokerError, LostRecordsError, OffsetAndEpoch, StoppedError, bounds_of
from tallystream_aggregator.stream.reading import MAX_EMPTY_READS, READ_AT_ONCE, READ_S

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tallystream_aggregator.stream.broker import Broker, Place, Source


def truncations(
    broker: Broker, last_records: Mapping[Place, OffsetAndEpoch], stopped: Callable[[], bool] = lambda: False
) -> dict[Place, int]:
    """Return the partitions that have lost records up to the last one that was read → the first offset that is lost.

    A partition whose last record was deleted is taken for whole. A leader that was isolated may have an older end for
    some seconds, so a log that ends before the last record is looked at for as long.

    Raises:
        StoppedError: a stop was requested.
        BrokerError: the broker did not answer in time.
    """
    found: dict[Place, int] = {}
    with closing(broker.source()) as source:
        bounds = broker.bounds(last_records.keys())
        kept = {place: last_records[place] for place, of in bounds.items() if of.first <= last_records[place].offset}
        offsets = {place: last.offset for place, last in kept.items() if last.offset < bounds[place].end}
        firsts = _first_records(source, offsets, stopped)
        for place, last in kept.items():
            if place in firsts and not _is_of_later_leader(firsts[place], last):
                continue
            if place not in firsts and not _stays_shorter(broker, source, place, last.offset, stopped):
                raise BrokerError(f"{place} sends nothing from {last.offset} on.")

            def is_lost(offset: int, place: Place = place, last: OffsetAndEpoch = last) -> bool:
                return _is_of_later_leader(_first_records(source, {place: offset}, stopped).get(place), last)

            first, _, end = bounds_of(broker, place)
            end = min(last.offset, end)
            found[place] = bisect_left(range(end), True, lo=min(first, end), key=is_lost)
    return found


def _is_of_later_leader(found: OffsetAndEpoch | None, last: OffsetAndEpoch) -> bool:
    """Return whether a later leader has written a record at or before the last one that was read."""
    return found is not None and found.offset <= last.offset and found.epoch > last.epoch


def _stays_shorter(broker: Broker, source: Source, place: Place, offset: int, stopped: Callable[[], bool]) -> bool:
    """Return whether a log ends before an offset, and still does after a while."""
    source.assign({})
    for _ in range(MAX_EMPTY_READS):
        if bounds_of(broker, place).end > offset:
            return False
        if stopped():
            raise StoppedError
        source.read(1, READ_S)  # waits
    return True


def _first_records(
    source: Source, offsets: Mapping[Place, int], stopped: Callable[[], bool]
) -> dict[Place, OffsetAndEpoch | None]:
    """Return the first record of each partition at or after an offset, None if its epoch is unknown.

    Partitions that send nothing are missing. All are read together: alone, each that is idle would take half a second.
    """
    found: dict[Place, OffsetAndEpoch | None] = {}
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
        for place, rows, _, ends in new:
            found[place] = OffsetAndEpoch(rows[0][0], ends[0].epoch) if ends else None
        empty = 0 if new else empty + 1
        if chunks and not new:
            source.assign(left)  # no more from those that go on
    return found
