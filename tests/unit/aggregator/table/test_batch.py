"""A batch of one shard: when lives fall silent, also in partitions without new records."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from support.topic import BEGIN_MS, FIRST, SECOND, counter, gauge
from tallystream_aggregator import sums
from tallystream_aggregator.table import Record, State, Table
from tallystream_aggregator.table.lives import LifeCounts
from tallystream_aggregator.table.state import pack, unpack
from tallystream_aggregator.table.table import run_batch

if TYPE_CHECKING:
    import pytest

    from tallystream_aggregator.table.table import Changes


def _record(partition: int, offset: int, at: int, *, final: bool = False) -> Record:
    """Return a snapshot of the partition's own instance, which reports once a second."""
    life = (FIRST, SECOND)[partition]
    value = {"v": 1, "app": "shop", "life": life, "part": 0, "seq": offset + 1, "ts": 0, "every_ms": 1000}
    value |= {"final": final, "metrics": [gauge(5), counter(7)]}
    key = b"app-%d" % partition
    return Record("metrics", partition, offset, BEGIN_MS + at, key, json.dumps(value).encode())


def _living(changes: Changes) -> list[int | None]:
    """Return the number of lives in the gauge's sum as a list, which is empty if the batch did not publish it."""
    found = [total for total in changes.totals if total.metric[1] == "g"]
    return [sums.decode(total.value(epoch=1, batch=1)).number for total in found]


def test_a_life_of_an_idle_partition_falls_silent_while_others_report() -> None:
    """Partition 1 gets no records. The first batch after three intervals of wall time finds its life silent."""
    table, living = Table(State()), []
    for second in range(5):
        records = [_record(partition, second, 1000 * second) for partition in ((0, 1) if second == 0 else (0,))]
        living.append(_living(run_batch(table, records, now_ms=1000 * second + 100)))
    assert living == [[2], [2], [2], [1], [1]]
    assert _living(run_batch(table, [_record(0, 5, 9000), _record(1, 1, 9000)], now_ms=9100)) == [2]


def test_a_shard_is_due_when_the_first_of_its_lives_may_fall_silent() -> None:
    """This is the earliest deadline of its lives in wall time, counted from the last read of the life's partition."""
    table = Table(State())
    due = []
    for offset, (partition, at, now) in enumerate([(0, 0, 100), (1, 900, 1500), (0, 2000, 2200)]):
        run_batch(table, [_record(partition, offset, at)], now_ms=now)
        due.append(table.state.due_ms)
    assert due == [3100] * 3  # in the end this is too early, and it is corrected when the time has passed
    run_batch(table, [], now_ms=3100)
    assert table.state.due_ms == 4500
    run_batch(table, [], now_ms=9000)
    assert table.state.due_ms == 0


def test_a_batch_that_leaves_no_life_living_does_not_visit_all_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended lives stay in memory for a day. There may be a million of them, so a visit to all would be slow."""
    table = Table(State())
    run_batch(table, [_record(0, 0, 0)], now_ms=100)
    run_batch(table, [], now_ms=9_000)
    visits: list[int] = []
    monkeypatch.setattr(LifeCounts, "rescan", lambda _: visits.append(1))
    run_batch(table, [_record(1, 0, 9_000, final=True)], now_ms=9_500)
    assert (visits, table.state.due_ms, len(table.state.lives)) == ([], 0, 2)


def test_a_life_falls_silent_though_the_wall_clock_was_set_back() -> None:
    """The clock is set back by an hour after the last record of partition 1. Its time continues from the next batch."""
    table, hour = Table(State()), 3_600_000
    run_batch(table, [_record(0, 0, 0), _record(1, 0, 0)], now_ms=hour)
    assert _living(run_batch(table, [_record(0, 1, 500)], now_ms=500)) == [2]
    assert _living(run_batch(table, [_record(0, 2, 3000)], now_ms=3000)) == [2]
    assert table.state.due_ms == 3500
    assert _living(run_batch(table, [], now_ms=3500)) == [1]


def test_the_wall_clock_has_no_effect_on_partitions_with_unread_records() -> None:
    """A batch ten hours later leaves records of partition 1 unread. They may be of its lives, so these stay living."""
    table = Table(State())
    run_batch(table, [_record(0, 0, 0), _record(1, 0, 0)], now_ms=100)
    later = 36_000_000
    assert _living(run_batch(table, [], now_ms=later, waiting=["metrics:1"])) == [1]
    assert _living(run_batch(table, [_record(1, 1, later)], now_ms=later + 500, waiting=["metrics:1"])) == [1]
    assert _living(run_batch(table, [], now_ms=later + 3_500)) == [0]


def test_a_batch_that_runs_again_finds_the_same_lives_silent() -> None:
    """With the same state and the same time, its changes and the new state are the same."""
    table = Table(State())
    run_batch(table, [_record(0, 0, 0), _record(1, 0, 0)], now_ms=100)
    first, again = (Table(unpack(pack(table.state))) for _ in range(2))
    records = [_record(0, 1, 3000)]
    changes = run_batch(first, records, now_ms=3100)
    assert _living(changes) == [1]
    assert run_batch(again, records, now_ms=3100) == changes
    assert pack(again.state) == pack(first.state)


def test_wall_time_begins_with_the_first_batch_of_a_rebuilt_table() -> None:
    """A rebuilt table does not know when its partitions were last read, so it adds no earlier wall time."""
    table = Table(State())
    run_batch(table, [_record(0, 0, 0), _record(1, 0, 0)], now_ms=100)
    rebuilt = unpack(pack(table.state))
    rebuilt.read_ms = {}
    table = Table(rebuilt)
    run_batch(table, [_record(0, 1, 1000)], now_ms=50_000)
    assert _living(run_batch(table, [], now_ms=52_999)) == []
    assert _living(run_batch(table, [], now_ms=53_000)) == [0]
