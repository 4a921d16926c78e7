"""The newest rows from the ends of the partitions."""

from __future__ import annotations

from support.simulation.direct import ROWS, TOPICS, Direct
from tallystream_aggregator.jobs.aggregate.table_tail import LAST, TableTail


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
