"""Reads the newest committed records of the loops from the ends of their partitions, while they run.

Spark reports an epoch when it ends. Positions and numbers of lives are on the topic a moment after each step.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from tallystream.decoding import json_decoder
from tallystream_aggregator.stream.positions import PositionsRow, key_of, loops_of, newest_in
from tallystream_aggregator.table.rows import ShardRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.stream.broker import Place, Positions, RawRecord, Source

LAST = 512
"""How many offsets at the end of a partition are read. At fifty steps a second, rows are about 100 offsets apart."""

READ_S = 0.1
"""How long a read waits for a record. An open transaction may hold back the end."""

FIRST_READ_S = 2.0
"""The same for the first record of all: the source has to connect first."""

MAX_READS = 10
"""The most reads of a poll: while an open transaction holds back the end of one loop, others go on publishing."""

_decode_shard = json_decoder(ShardRow)


class TableTail:
    """Follows the ends of the partitions of a table with so many shards. For one thread.

    `source` reads committed records. `places` are the partitions. `positions` and `shards` have the newest rows that
    were found, by shard. The combiner comes after the last shard, and has only positions.
    """

    def __init__(self, source: Source, topics: Topics, shards: int) -> None:
        self._source = source
        self.places = [loop.rows for loop in loops_of(topics, shards)]
        self.positions: dict[int, PositionsRow] = {}
        self.shards: dict[int, ShardRow] = {}
        self._at: Positions = dict.fromkeys(self.places, 0)

    def poll(self, ends: Mapping[Place, int]) -> bool:
        """Read what is new up to these ends of the partitions, and return whether anything was.

        Raises:
            LostRecordsError: records were deleted meanwhile. The next call may succeed.
            BrokerError: the broker rejects the request.
            TallystreamError: another version wrote the newest positions.
        """
        at = {
            place: max(self._at[place], ends[place] - LAST)
            for place in self.places
            if ends.get(place, 0) > self._at[place]
        }
        found, wait_s = False, READ_S if any(self._at.values()) else FIRST_READ_S
        self._source.assign(at)
        for _ in range(MAX_READS):
            behind = any(at[place] < ends[place] for place in at)
            chunks = self._source.read(LAST, wait_s) if behind else []
            if not chunks:
                break
            wait_s = READ_S
            for chunk in chunks:
                at[chunk.place] = chunk.end
                self._add(chunk.place.partition, list(chunk.rows))
                found = True
        self._source.assign({})  # else it would go on fetching
        self._at |= at
        return found

    def _add(self, number: int, rows: list[RawRecord]) -> None:
        """Note the newest rows among records."""
        if (positions := newest_in(rows, key_of(number))) is not None:
            self.positions[number] = positions
        key = b'["shard",%d]' % number
        for _, _, found, value in rows:
            if found == key and value is not None:
                with suppress(msgspec.DecodeError):
                    self.shards[number] = _decode_shard(value)
