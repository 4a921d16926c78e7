"""The newest rows from the ends of the partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from support.simulation.direct import ROWS, TOPICS, Direct
from tallystream_aggregator.jobs.aggregate.table_tail import LAST, MAX_READS, TableTail
from tallystream_aggregator.stream.broker import Chunk, Place

if TYPE_CHECKING:
    from collections.abc import Mapping


class BusySource:
    """A source whose first partition always has a new record. No other one has any."""

    def __init__(self) -> None:
        self.reads = 0

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Do nothing."""

    def read(self, max_records: int, timeout_s: float) -> list[Chunk]:
        """Return the next record."""
        del max_records, timeout_s
        self.reads += 1
        assert self.reads <= MAX_READS
        return [Chunk(ROWS, [(self.reads, 0, b"other", b"")], self.reads + 1)]

    def close(self) -> None:
        """Do nothing."""


def test_the_newest_rows_of_a_loop_are_found_at_the_end() -> None:
    """They are those of the newest step. Without a new one nothing is read, and of many rows only the last."""
    direct = Direct()
    tail = TableTail(direct.broker.source(committed=True), TOPICS, 1)
    loop = direct.loop()
    loop.run_epoch(direct.store, (1, 0), 1)
    for value in range(3):
        direct.feed(value, key=b"app-%d" % value)
        loop.run_epoch(direct.store, (1, value), 2)
    ends = {ROWS: direct.broker.bounds([ROWS])[ROWS].end}
    assert (tail.poll(ends), tail.poll(ends)) == (True, False)
    positions, shard = tail.positions[0], tail.shards[0]
    assert (positions.records, shard.records, shard.lives) == (3, 3, 3)
    for _ in range(LAST):
        direct.cluster.append(ROWS, b"other", b"")
    assert tail.poll({ROWS: ends[ROWS] + LAST})
    assert tail.positions[0] == positions


def test_a_poll_ends_though_an_open_transaction_holds_back_a_loop_and_others_go_on() -> None:
    """The driver has more to do: it commits offsets, and notices that its query has ended."""
    source = BusySource()
    tail = TableTail(source, TOPICS, 2)
    assert tail.poll({ROWS: 1, Place(ROWS.topic, 1): 5})
