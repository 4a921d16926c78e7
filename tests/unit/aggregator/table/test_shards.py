"""A table that is split into more shards, case by case. test_properties.py has random splits."""

from __future__ import annotations

import json

import pytest

from tallystream_aggregator.table.restore.latest_rows import LatestRows, RebuildError
from tallystream_aggregator.table.restore.restore import restore
from tallystream_aggregator.table.shards import shard_of
from tallystream_aggregator.versions import UNKNOWN, Version

Row = tuple[bytes, bytes | None, Version, int]
"""(key, value, writer of a deletion, partition) of a record of `metrics-table`"""


def latest(*rows: Row) -> LatestRows:
    """Return the latest rows of a topic with these records."""
    found = LatestRows()
    for row in rows:
        found.add(*row)
    return found


def shard_row(shards: int, *, offset: int | None = None) -> Row:
    """Return the record of shard 0."""
    clocks, offsets = ({}, {}) if offset is None else ({"metrics:0": 5}, {"metrics:0": offset})
    value = {"v": 1, "shard": 0, "shards": shards, "clocks": clocks, "offsets": offsets}
    return b'["shard",0]', json.dumps(value | {"out_ms": 0, "list_id": 0, "stale": 0}).encode(), UNKNOWN, 0


def test_fewer_shards_are_refused() -> None:
    """Forgotten sums belong to their shards, so a table can be split into more shards, never into fewer."""
    with pytest.raises(RebuildError, match="--shards 2: the table has 3; it can be split into more, never into fewer"):
        restore(latest(shard_row(3)), shards=2)


def test_more_shards_are_refused_while_a_batch_may_be_unfinished() -> None:
    """A shard has written more than the ledger has as finished. The error says what to do first."""
    rows = latest(shard_row(1, offset=9))
    with pytest.raises(RebuildError, match="--shards 2: the last batch is not known to be finished; run"):
        restore(rows, shards=2, finished={"metrics:0": 9})
    states = restore(rows, shards=2, finished={"metrics:0": 10}).states
    assert [state.offsets for state in states] == [{"metrics:0": 9}] * 2


@pytest.mark.parametrize("shards", [None, 4])
def test_rows_of_an_abandoned_split_do_not_count(shards: int | None) -> None:
    """The first batch after the split crashed before a shard had finished. A later split ignores its rows, too."""
    forgetting = b'{"v":1,"list_id":1,"lives":[["a","b","c"]],"epoch":2}'
    rows = latest(shard_row(2, offset=9), (b'["forgetting",3,1,0]', forgetting, UNKNOWN, 3))
    states = restore(rows, shards=shards, finished={"metrics:0": 10}).states
    assert len(states) == (shards or 2)
    assert all(state.delete_keys == state.listed == state.deleting == [] for state in states)


def moved(shard: int, *, shards: int, epoch: int, since: int) -> Row:
    """Return a shard's own record, in its partition."""
    row = {"v": 1, "shard": shard, "shards": shards, "since": since, "clocks": {}, "offsets": {"metrics:0": 9}}
    row |= {"before": [2, 0]} if since else {}
    value = json.dumps(row | {"out_ms": 0, "list_id": 0, "stale": 0, "epoch": epoch, "batch": 1}).encode()
    return b'["shard",%d]' % shard, value, UNKNOWN, shard


def counted(instance: str, count: int, *, epoch: int, partition: int) -> Row:
    """Return a life's row in a partition."""
    row = {"app": "a", "instance": instance, "life": "L", "part": 0, "topic": "metrics", "partition": 0, "offset": 5}
    row |= {
        "last_seen_ms": 1,
        "every_ms": 1000,
        "keep_ms": 1,
        "metrics": [{"name": "n", "type": "counter", "count": count}],
    }
    key = json.dumps(["life", "a", instance, "L", 0], separators=(",", ":")).encode()
    return key, json.dumps(row | {"epoch": epoch, "batch": 1}).encode(), UNKNOWN, partition


def test_a_row_in_a_partition_of_another_shard_does_not_count() -> None:
    """What a cut left in the old partitions is ignored, though its deletion in the new one has been compacted away.

    So is what a cut that was given up left in the new ones; until a shard has written its rows, the old ones count.
    """
    names = [f"app-{number}" for number in range(60)]
    gone = next(n for n in names if shard_of(n.encode(), 2) == 0 and shard_of(n.encode(), 3) == 1)
    late = next(n for n in names if shard_of(n.encode(), 2) == 0 and shard_of(n.encode(), 3) == 2)
    kept = next(n for n in names if n != gone and shard_of(n.encode(), 3) == 1)

    def rebuilt(*log: Row) -> dict[str, list[int | float | None]]:
        states = restore(latest(*log)).states
        lives = [life for state in states for (life,) in state.lives.values()]
        return {life.instance: [row.values[0] for row in life.rows.values()] for life in lives}

    old = [moved(0, shards=2, epoch=1, since=0), counted(gone, 7, epoch=1, partition=0)]
    old.append(counted(late, 5, epoch=1, partition=0))
    new = [moved(1, shards=3, epoch=4, since=3), counted(kept, 9, epoch=4, partition=1)]
    given_up = counted(gone, 8, epoch=2, partition=1)
    assert rebuilt(*old, *new, given_up) == {kept: [9], late: [5]}
    assert rebuilt(*old, given_up) == {gone: [7], late: [5]}
    done = [moved(number, shards=3, epoch=4, since=3) for number in (0, 2)]
    assert rebuilt(*old, *new, *done, given_up) == {kept: [9]}
