"""The records of one step's transaction: dead letters, events, sums, rows, and last the positions row.

Of several shards, each writes its partial sums to its partition of `metrics-shards` instead of sums.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tallystream_aggregator.stream import positions
from tallystream_aggregator.stream.broker import Output, Place
from tallystream_aggregator.sums import key_of
from tallystream_aggregator.table.combiners import encode as encode_shard_sum

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tallystream_aggregator.kafka.topics import Topics
    from tallystream_aggregator.stream.positions import PositionsRow
    from tallystream_aggregator.table.rows import TableRecord
    from tallystream_aggregator.table.table import Changes


class Step(NamedTuple):
    """What a step publishes: the outputs of the table, rows if they are due, and the positions row."""

    changes: Changes
    rows: list[TableRecord]
    row: PositionsRow

    def records(self, topics: Topics) -> Iterator[Output]:
        """Yield the records of the transaction, one by one: all values together may take much memory."""
        shard, agg = self.row.shard, Place(topics.agg, 0)
        yield from letters(self.changes, topics)
        for total in self.changes.totals:
            yield Output(agg, total.key(), total.value())
        if self.row.of > 1:
            yield from self._partial_sums(Place(topics.shards, shard))
        table = Place(topics.table, shard)
        for row in self.rows:
            yield Output(table, row.key, row.value())
        yield Output(table, positions.key_of(shard), positions.encode(self.row))

    def _partial_sums(self, place: Place) -> Iterator[Output]:
        """Yield the partial sums of a shard, and the positions row, which says that they are of one moment."""
        for one in self.changes.shard_sums:
            yield Output(place, key_of(one.metric), encode_shard_sum(one))
        yield Output(place, positions.key_of(self.row.shard), positions.encode(self.row))


def letters(changes: Changes, topics: Topics) -> Iterator[Output]:
    """Yield the records of dead letters and events."""
    dead, events = Place(topics.dead, 0), Place(topics.events, 0)
    for letter in changes.dead:
        yield Output(dead, letter.key(), letter.value())
    for event in changes.events:
        yield Output(events, event.key(), event.value())
