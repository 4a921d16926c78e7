"""Rows that a replaced writer overwrote are published again from the state, and no others."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from support.topic import BEGIN_MS, DAY_MS, FIRST, Topic, counter, gauge
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.table.shards import shard_of
from tallystream_aggregator.table.table import Republish, run_batch

if TYPE_CHECKING:
    from tallystream_aggregator.table.table import Changes

TICK = b'{"name":"tick","value":1}'
LIFE = json.dumps(["life", "shop", "app-1", FIRST, 0], separators=(",", ":")).encode()
SUM = b'["shop","counter","n",[]]'
SHARD = b'["shard",0]'


def republished(table: Table, *keys: bytes, sums: tuple[bytes, ...] = ()) -> Changes:
    """Return the changes of a batch without records in which these keys are published again."""
    return run_batch(table, [], now_ms=1, republish=Republish(keys, sums))


def rows(changes: Changes) -> dict[bytes, Any]:
    """Return the rows by key, each as JSON, None for a deletion."""
    values = {row.key: row.value(epoch=2, batch=1) for row in changes.rows}
    return {key: None if value is None else json.loads(value) for key, value in values.items()}


def test_a_life_in_memory_and_its_sum_are_published_again_as_they_are() -> None:
    """They are published although nothing has changed. The shard's record is the last one."""
    topic = Topic().snapshot(counter(20), gauge(3))
    (before,) = [row for row in topic.changes.rows if row.key == LIFE]
    changes = republished(topic.table, LIFE, sums=(SUM, b'["shop","counter","unknown",[]]', b"?"))
    assert [row.key for row in changes.rows] == [LIFE, SHARD]
    assert rows(changes)[LIFE] == json.loads(before.value(epoch=2, batch=1) or b"")
    assert [(total.metric[1], total.totals["count"]) for total in changes.totals] == [("n", 20)]


def test_a_life_on_disk_is_published_again_and_stays_there() -> None:
    """Its counts are those of its newest record."""
    topic = Topic().snapshot(counter(20)).append(b"clock", TICK, at=2 * DAY_MS)
    assert len(topic.table.disk) == 1
    assert rows(republished(topic.table, LIFE))[LIFE]["metrics"][0]["count"] == 20
    assert len(topic.table.disk) == 1
    assert rows(republished(topic.table)).keys() == {SHARD}


def test_a_record_of_the_same_batch_is_in_the_row() -> None:
    """The row is that of the batch's end, also where the life comes from disk in it."""
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
        b'["forgetting",0,1,0]',
        b'["forgetting",0,1,-1]',
        b'["shard",1]',
        b'["other"]',
        b"[]",
        b"\xff",
    ],
)
def test_a_key_that_the_state_does_not_have_is_deleted(key: bytes) -> None:
    """No table writes such a key, whatever it contains."""
    topic = Topic().snapshot(counter(20))
    key = key.replace(b"LIFE", FIRST.encode())
    assert rows(republished(topic.table, key))[key] is None


def test_another_shards_life_is_left_alone() -> None:
    """After a split, the row counts in its old partition until that shard has written its own record."""
    mine, other = (next(n for n in range(99) if shard_of(b"app-%d" % n, 2) == shard) for shard in (0, 1))
    keys = [b'["life","shop","app-%d","",0]' % number for number in (mine, other)]
    table = Table(State(shards=2))
    assert rows(republished(table, *keys)).keys() == {keys[0], SHARD}


def test_a_shard_publishes_its_partial_sum_of_a_metric_again() -> None:
    """With several shards the combiner publishes the sum."""
    record = Record("metrics", 0, 0, BEGIN_MS, b"app-1", TICK)
    table = Table(State(shard=shard_of(b"app-1", 2), shards=2))
    run_batch(table, [record], now_ms=1)
    changes = republished(table, sums=(b'["default","counter","tick",[]]', SUM))
    assert [(one.metric[1], one.lives) for one in changes.shard_sums] == [("tick", 1)]


def test_each_step_of_forgetting_a_life_is_published_again_as_the_topic_has_to_have_it() -> None:
    """The topic has row and list, then forgotten sums and list, then only the forgotten sums."""
    topic = Topic(TableSettings(forget_after_ms=7 * DAY_MS)).snapshot(counter(20), key=b"app-1")
    topic.append(b"clock", TICK, at=9 * DAY_MS)
    forgotten_sums, fold = b'["forgotten",0,"shop","counter","n",[]]', b'["forgetting",0,1,0]'
    seen = []
    for now_ms in range(BEGIN_MS + 9 * DAY_MS, BEGIN_MS + 9 * DAY_MS + 5):
        asked = Republish([LIFE, forgotten_sums, fold], [])
        found = rows(run_batch(topic.table, [], now_ms=now_ms, republish=asked))
        seen.append({key: found[key] is not None for key in (LIFE, forgotten_sums, fold) if key in found})
    assert seen == [
        {LIFE: True, forgotten_sums: False, fold: True},
        {forgotten_sums: True, fold: True},
        {LIFE: False, forgotten_sums: True, fold: True},
        {LIFE: False, forgotten_sums: True, fold: False},
        {LIFE: False, forgotten_sums: True, fold: False},
    ]
