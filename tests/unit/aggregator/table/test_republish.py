"""Repair: rows that a replaced writer overwrote are published again from the state."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from support.topic import BEGIN_MS, DAY_MS, FIRST, Topic, counter, gauge
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.table.clock_record import CLOCK_KEY, clock_value
from tallystream_aggregator.table.restore.republish import Republish
from tallystream_aggregator.table.shards import shard_of
from tallystream_aggregator.table.table import run_batch

if TYPE_CHECKING:
    from tallystream_aggregator.table.table import Changes

TICK = b'{"name":"tick","value":1}'
LIFE = json.dumps(["life", "shop", "app-1", FIRST, 0], separators=(",", ":")).encode()
SUM = b'["shop","counter","n",[]]'
SHARD = b'["shard",0]'


def republished(table: Table, *keys: bytes, sums: tuple[bytes, ...] = ()) -> Changes:
    """Return the changes of a batch without records in which these keys are published again."""
    return run_batch(table, [], republish=Republish(keys, sums))


def rows(changes: Changes) -> dict[bytes, Any]:
    """Return the rows by key, each as JSON, None for a deletion."""
    values = {row.key: row.value(epoch=2, batch=1) for row in changes.rows}
    return {key: None if value is None else json.loads(value) for key, value in values.items()}


def test_a_life_in_memory_and_its_sum_are_published_again_unchanged() -> None:
    """Unknown sums are ignored. The shard's record is the last one."""
    topic = Topic().snapshot(counter(20), gauge(3))
    (before,) = [row for row in topic.changes.rows if row.key == LIFE]
    changes = republished(topic.table, LIFE, sums=(SUM, b'["shop","counter","unknown",[]]', b"?"))
    assert [row.key for row in changes.rows] == [LIFE, SHARD]
    assert rows(changes)[LIFE] == json.loads(before.value(epoch=2, batch=1) or b"")
    assert [(total.metric[1], total.totals["count"]) for total in changes.totals] == [("n", 20)]


def test_the_row_includes_the_records_of_its_batch() -> None:
    """It has the newest counts."""
    topic = Topic().snapshot(counter(20)).append(b"clock", TICK, at=2 * DAY_MS)
    topic.table.republish([LIFE], [])
    topic.snapshot(counter(25), seq=2, prev=BEGIN_MS, at=DAY_MS - 1)
    assert rows(topic.changes)[LIFE]["metrics"][0]["count"] == 25


@pytest.mark.parametrize(
    "key",
    [
        b'["life","shop","app-1","LIFE",7]',
        b'["life","shop","gone","",0]',
        b'["life","shop","app-1","LIFE", 0]',
        b'["forgotten",0,"shop","counter","n",[]]',
        b'["forgotten",0,"shop","counter","n",[["a"],7]]',
        b'["forgotten",1,"shop","counter","n",[]]',
        b'["shard",1]',
        b'["other"]',
        b"[]",
        b"\xff",
    ],
)
def test_a_key_that_the_state_does_not_have_is_deleted(key: bytes) -> None:
    """The row of a key that no table writes is deleted, too."""
    topic = Topic().snapshot(counter(20))
    key = key.replace(b"LIFE", FIRST.encode())
    assert rows(republished(topic.table, key))[key] is None


def test_a_life_of_another_shard_is_not_deleted() -> None:
    """After a split, its row in the old partition counts until the other shard has written its own record."""
    own, other = (next(n for n in range(99) if shard_of(b"app-%d" % n, 2) == shard) for shard in (0, 1))
    keys = [b'["life","shop","app-%d","",0]' % number for number in (own, other)]
    table = Table(State(shards=2))
    assert rows(republished(table, *keys)).keys() == {keys[0], SHARD}


def test_a_shard_publishes_its_partial_sum_of_a_metric_again() -> None:
    """With several shards the combiner publishes the sum from it."""
    record = Record("metrics", 0, 0, BEGIN_MS, b"app-1", TICK)
    table = Table(State(shard=shard_of(b"app-1", 2), shards=2))
    run_batch(table, [record])
    changes = republished(table, sums=(b'["default","counter","tick",[]]', SUM))
    assert [(one.metric[1], one.lives) for one in changes.shard_sums] == [("tick", 1)]


FORGOTTEN = b'["forgotten",0,"shop","counter","n",[]]'


def test_the_rows_of_a_forgotten_life_are_published_again() -> None:
    """They are its sums and the deletion of its row, also in the batch that forgets it."""
    topic = Topic(TableSettings(forget_after_ms=7 * DAY_MS)).snapshot(counter(20))
    at_ms = BEGIN_MS + 7 * DAY_MS
    clock = Record("metrics", 0, 1, at_ms, CLOCK_KEY, clock_value(at_ms))
    for records in ([clock], []):
        found = rows(run_batch(topic.table, records, republish=Republish([LIFE, FORGOTTEN], [])))
        assert (found[LIFE], found[FORGOTTEN]["lives"]) == (None, 1)
