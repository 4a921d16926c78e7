"""Transactions that Kafka has left open for ever: which of a loop are open, and how they end.

Kafka 4.3.1 writes no marker to a partition that has no leader at that moment, and calls the transaction complete
(KAFKA-20734). A single broker that is killed between the decision and the markers does so for all partitions. Then
their last stable offsets stand still.

A later transaction of the same transactional ID ends them: its marker ends all that the ID has open in the partition.
So a new writer decides again. If a reader has seen a part of the step, it is committed. Otherwise nobody has seen it:
it is aborted, and its records are read again.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from tallystream.decoding import json_decoder
from tallystream_aggregator.kafka.topic_selection import Offsets
from tallystream_aggregator.stream.broker import Output, Place, Positions
from tallystream_aggregator.stream.positions import (
    by_place,
    encode,
    key_of,
    newest_in,
    require_highest,
    summed,
    visible_row,
)
from tallystream_aggregator.stream.reading import backwards, read_range
from tallystream_aggregator.table.records.decode import shard_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tallystream_aggregator.stream.broker import Bounds, Broker, RawRecord, Writer
    from tallystream_aggregator.stream.positions import Claim, LoopId

log = logging.getLogger(__name__)


class _Output(msgspec.Struct):
    """Where the input of an output is: the record of a dead letter or event, or what a sum or positions include."""

    instance: str = ""
    topic: str = ""
    partition: int = 0
    offset: int = -1
    offsets: Offsets = {}
    positions: Offsets = {}

    def positions_after(self) -> Positions:
        """Return the positions after the input."""
        included = {place: offset + 1 for place, offset in by_place(self.offsets).items()}
        return {Place(self.topic, self.partition): self.offset + 1} | included | by_place(self.positions)


_decode = json_decoder(_Output)


def end_open(broker: Broker, loop: LoopId, writer: Writer, claim: Claim) -> None:
    """End what earlier writers of a loop have left open. `writer` is the loop's newest one, with this claim.

    Its markers are visible a moment later. What ends dead letters and events of a published step is a record without a
    value.

    Raises:
        FencedError: the transaction is that of a newer writer.
        BrokerError: it failed.
    """
    bounds = broker.bounds([loop.rows, loop.sums, *loop.letters])
    found = {place: _of(loop, place, _open_records(broker, place, one)) for place, one in bounds.items()}
    hanging = {place: records for place, records in found.items() if records}
    if not hanging:
        return
    published, last = visible_row(broker, loop.rows, loop.number), None
    at: Positions = {}
    if published is not None:
        at = summed(published) if loop.number == loop.shards else by_place(published.positions)
    if loop.rows in hanging:
        last = newest_in(hanging[loop.rows], key_of(loop.number))
        require_highest(claim, last)
        if last is not None and published is not None and last.layout != published.layout:
            return  # `rebuild` has written it, with another transactional ID
        inputs = (_input(_newest_of(broker, loop, place, bounds[place])) for place in found if place != loop.rows)
        is_published = last is not None and any(_is_beyond(one, at) for one in inputs)
    else:
        inputs = (_input(records) for records in hanging.values())
        is_published = published is not None and all(one and not _is_beyond(one, at) for one in inputs)
    names, outcome = ", ".join(map(str, hanging)), "published" if is_published else "aborted"
    log.warning("%s: Kafka has lost the markers of a step in %s; it is %s", loop.transactional_id, names, outcome)
    if not is_published:
        writer.abort({*hanging, *loop.letters})
        return
    again = [Output(p, None, None) for p in loop.letters if p in bounds and bounds[p].stable < bounds[p].end]
    if loop.sums in hanging:
        again.append(Output(loop.sums, *hanging[loop.sums][-1][2:]))
    last = last or published
    assert last is not None
    row = msgspec.structs.replace(last, claim=claim, step=last.step + 1, restoring=True)
    again.append(Output(loop.rows, key_of(loop.number), encode(row)))
    writer.commit(again)


def _open_records(broker: Broker, place: Place, bounds: Bounds) -> list[RawRecord]:
    return list(read_range(broker, place, bounds._replace(first=bounds.stable), committed=False))


def _newest_of(broker: Broker, loop: LoopId, place: Place, bounds: Bounds) -> list[RawRecord]:
    """Return the newest visible records of a loop, in ranges of offsets: the shards may have written many others."""
    return next(filter(None, (_of(loop, place, records) for records in backwards(broker, place, bounds))), [])


def _of(loop: LoopId, place: Place, records: list[RawRecord]) -> list[RawRecord]:
    """Return the records of a loop. All shards write dead letters and events."""
    if place not in loop.letters or loop.shards == 1:
        return records
    return [record for record in records if shard_of(_instance(record), loop.shards) == loop.number]


def _instance(record: RawRecord) -> bytes | None:
    """Return the instance of an event, or the key of a dead letter, which is that of the refused record."""
    _, _, key, value = record
    with suppress(msgspec.DecodeError):
        return _decode(value or b"").instance.encode() or key
    return key


def _input(records: Iterable[RawRecord]) -> Positions:
    """Return the highest positions after the input of these outputs, or nothing if none of them can be read.

    Partial sums can't. The positions row after them can.
    """
    highest: Positions = {}
    for _, _, _, value in records:
        with suppress(msgspec.DecodeError, ValueError):
            for place, position in _decode(value or b"").positions_after().items():
                highest[place] = max(position, highest.get(place, 0))
    return highest


def _is_beyond(positions: Positions, at: Positions) -> bool:
    """Tell whether one of these positions is after `at`: a later step has written these outputs."""
    return any(position > at.get(place, 0) for place, position in positions.items())
