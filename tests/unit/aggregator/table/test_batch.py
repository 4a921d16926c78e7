"""A batch of one shard: when silence is looked for, with partitions whose clocks stand still."""

from __future__ import annotations

import json

from support.topic import BEGIN_MS, FIRST, SECOND, counter, gauge
from tallystream.aggregator import sums
from tallystream.aggregator.table import Record, State, Table
from tallystream.aggregator.table.batch import Batch, run_batch
from tallystream.aggregator.table.state import pack, unpack


def _record(partition: int, offset: int, at: int) -> Record:
    """A snapshot of the partition's own instance, which reports once a second."""
    life = (FIRST, SECOND)[partition]
    value = {"v": 1, "app": "shop", "life": life, "part": 0, "seq": offset + 1, "ts": 0, "every_ms": 1000}
    value |= {"final": False, "metrics": [gauge(5), counter(7)]}
    key = b"app-%d" % partition
    return Record("metrics", partition, offset, BEGIN_MS + at, key, json.dumps(value).encode())


def _living(batch: Batch) -> list[int | None]:
    """How many lives the batch says that the gauge is the sum of; none where it says nothing of it."""
    found = [total for total in batch.changes.totals if total.metric[1] == "g"]
    return [sums.decode(total.value(epoch=1, batch=1)).number for total in found]


def test_a_life_of_a_quiet_partition_falls_silent_though_others_go_on() -> None:
    """Nobody publishes to partition 1 any more: its life is silent when its time has come by the wall clock."""
    table, timer, silent = Table(State()), 0, None
    for second in range(8):
        now = 1000 * second + 100
        records = [_record(partition, second, 1000 * second) for partition in ((0, 1) if second == 0 else (0,))]
        batch = run_batch(table, records, now_ms=now)
        timer = batch.timer.at_ms if batch.timer else timer
        if timer <= now + 400:
            batch = run_batch(table, [], now_ms=now + 400, expired=True)
            timer = batch.timer.at_ms if batch.timer else 0
        if silent is None and _living(batch) == [1]:
            silent = now
    assert silent == 3100
    assert _living(run_batch(table, [_record(1, 1, 9000)], now_ms=9100)) == [2]


def test_a_partition_without_a_time_of_its_own_was_seen_when_the_table_was() -> None:
    """A state of before, which has one time for all partitions, goes on: nobody is silent too early for it."""
    table = Table(State())
    run_batch(table, [_record(0, 0, 0), _record(1, 0, 0)], now_ms=100)
    old = unpack(pack(table.state))
    old.seen = {}
    table = Table(old)
    run_batch(table, [_record(0, 1, 2000)], now_ms=2100)
    assert _living(run_batch(table, [], now_ms=3099, expired=True)) == []
    assert _living(run_batch(table, [], now_ms=3100, expired=True)) == [1]


def test_a_table_that_was_rebuilt_gives_its_partitions_time() -> None:
    """A rebuilt table was never seen: each partition's time begins with its first batch of records."""
    table = Table(State())
    run_batch(table, [_record(0, 0, 0), _record(1, 0, 0)], now_ms=100)
    rebuilt = unpack(pack(table.state))
    rebuilt.seen, rebuilt.seen_ms, rebuilt.timer_ms = {}, 0, 0
    table = Table(rebuilt)
    run_batch(table, [_record(0, 1, 1000)], now_ms=50_000)
    assert _living(run_batch(table, [], now_ms=52_999, expired=True)) == []
    assert _living(run_batch(table, [], now_ms=53_000, expired=True)) == [0]
