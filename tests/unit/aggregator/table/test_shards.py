"""Splits of a table into more shards: single cases. test_properties.py has random splits."""

from __future__ import annotations

import json

import pytest

from tallystream_aggregator.table.clock_record import CLOCK_KEY
from tallystream_aggregator.table.decode import Record
from tallystream_aggregator.table.restore.latest_rows import LatestRows, RebuildError
from tallystream_aggregator.table.restore.restore import restore
from tallystream_aggregator.table.shards import shard_of, shards_of
from tallystream_aggregator.versions import UNKNOWN, Version

Row = tuple[bytes, bytes | None, Version, int]
"""(key, value, writer of a deletion, partition) of a record of `metrics-table`"""


def latest(*rows: Row) -> LatestRows:
    """Return the latest rows of a `metrics-table` with these records."""
    found = LatestRows()
    for row in rows:
        found.add(*row)
    return found


def shard_row(shards: int, *, offset: int | None = None) -> Row:
    """Return the record of shard 0 of a table with this many shards."""
    clocks, offsets = ({}, {}) if offset is None else ({"metrics:0": 5}, {"metrics:0": offset})
    value = {"v": 1, "shard": 0, "shards": shards, "clocks": clocks, "offsets": offsets}
    return b'["shard",0]', json.dumps(value | {"stale": 0}).encode(), UNKNOWN, 0


def test_fewer_shards_are_refused() -> None:
    """Forgotten sums belong to their shards, so a table can only be split into more of them."""
    with pytest.raises(RebuildError, match="--shards 2: the table has 3; it can be split into more, never into fewer"):
        restore(latest(shard_row(3)), shards=2)


def test_more_shards_are_refused_while_a_batch_may_be_unfinished() -> None:
    """A shard has written rows of a batch that is not finished in the ledger. The error says what to do first."""
    rows = latest(shard_row(1, offset=9))
    with pytest.raises(RebuildError, match="--shards 2: the last batch is not known to be finished; run"):
        restore(rows, shards=2, finished={"metrics:0": 9})
    states = restore(rows, shards=2, finished={"metrics:0": 10}).states
    assert [state.offsets for state in states] == [{"metrics:0": 9}] * 2


@pytest.mark.parametrize("shards", [None, 4])
def test_rows_of_an_abandoned_split_do_not_count(shards: int | None) -> None:
    """The first batch after the split crashed before any shard had finished it. A later split ignores its rows, too."""
    rows = latest(shard_row(2, offset=9), life_row("b", 7, epoch=2, partition=3))
    states = restore(rows, shards=shards, finished={"metrics:0": 10}).states
    assert len(states) == (shards or 2)
    assert not any(state.lives for state in states)


def split_shard_row(shard: int, *, shards: int, epoch: int, since: int) -> Row:
    """Return the record of a shard in its own partition. `since` is the epoch of the last split, or 0."""
    return shard_record(shard, shards=shards, epoch=epoch, since=since, before=(2, 0) if since else None)


def shard_record(shard: int, *, shards: int, epoch: int, since: int, before: tuple[int, int] | None) -> Row:
    """Return the record of a shard in its own partition."""
    row = {"v": 1, "shard": shard, "shards": shards, "since": since, "clocks": {}, "offsets": {"metrics:0": 9}}
    row |= {"before": before} if before else {}
    value = json.dumps(row | {"stale": 0, "epoch": epoch, "batch": 1}).encode()
    return b'["shard",%d]' % shard, value, UNKNOWN, shard


def life_row(instance: str, count: int, *, epoch: int, partition: int) -> Row:
    """Return the row of a life with one counter."""
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
    """After a split, a life's row in the partition of its old shard is ignored, and so is a row of an abandoned split.

    Until the new shard has written its own record, the row in the old partition counts.
    """
    names = [f"app-{number}" for number in range(60)]
    deleted = next(n for n in names if shard_of(n.encode(), 2) == 0 and shard_of(n.encode(), 3) == 1)
    unfinished = next(n for n in names if shard_of(n.encode(), 2) == 0 and shard_of(n.encode(), 3) == 2)
    finished = next(n for n in names if n != deleted and shard_of(n.encode(), 3) == 1)

    def rebuilt(*log: Row) -> dict[str, list[int | float | None]]:
        states = restore(latest(*log)).states
        lives = [life for state in states for (life,) in state.lives.values()]
        return {life.instance: [row.values[0] for row in life.rows.values()] for life in lives}

    old = [split_shard_row(0, shards=2, epoch=1, since=0), life_row(deleted, 7, epoch=1, partition=0)]
    old.append(life_row(unfinished, 5, epoch=1, partition=0))
    new = [split_shard_row(1, shards=3, epoch=4, since=3), life_row(finished, 9, epoch=4, partition=1)]
    abandoned = life_row(deleted, 8, epoch=2, partition=1)
    assert rebuilt(*old, *new, abandoned) == {finished: [9], unfinished: [5]}
    assert rebuilt(*old, abandoned) == {deleted: [7], unfinished: [5]}
    done = [split_shard_row(number, shards=3, epoch=4, since=3) for number in (0, 2)]
    assert rebuilt(*old, *new, *done, abandoned) == {finished: [9]}


@pytest.mark.parametrize("old_shards", [1, 2, 3])
def test_rows_of_an_earlier_table_do_not_count(old_shards: int) -> None:
    """After a new table began on the same topic, a rebuild has its lives, clocks and offsets only.

    The earlier table may have had fewer or more shards. A shard of the new table that has had no record begins empty.
    """

    def row(shard: int, *, shards: int, epoch: int, since: int) -> Row:
        return shard_record(shard, shards=shards, epoch=epoch, since=since, before=None)

    app_1, app_2 = (next(n for n in map(str, range(9)) if shard_of(n.encode(), 2) == shard) for shard in (0, 1))
    earlier = [row(shard, shards=old_shards, epoch=1, since=0) for shard in range(old_shards)]
    earlier += [life_row(name, 7, epoch=1, partition=shard_of(name.encode(), old_shards)) for name in (app_1, app_2)]
    held = b'{"app":"a","name":"n","type":"counter","lives":1,"held":[[[1,"1",0,"0"]],[]],"epoch":1}'
    last = old_shards - 1
    earlier.append((b'["forgotten",%d,"a","counter","n",[]]' % last, held, UNKNOWN, last))
    table = [row(0, shards=2, epoch=3, since=2), life_row(app_1, 9, epoch=3, partition=0)]
    found = latest(*earlier, *table)
    first, second = restore(found).states
    assert {name: life.rows[0].values for name, (life,) in first.lives.items()} == {app_1: (9,)}
    assert (second.lives, second.offsets, first.forgotten_sums, second.forgotten_sums) == ({}, {}, {}, {})
    assert [(state.since, state.before) for state in (first, second)] == [(2, None)] * 2
    assert len(restore(found, shards=4, finished={"metrics:0": 10}).states) == 4


def test_a_clock_record_is_in_every_shard() -> None:
    """In an OTLP topic its key means nothing."""
    record = Record("metrics", 0, 0, 0, CLOCK_KEY, None)
    assert shards_of(record, 3, ()) == {0, 1, 2}
    assert len(shards_of(record, 3, ("metrics",))) == 1
