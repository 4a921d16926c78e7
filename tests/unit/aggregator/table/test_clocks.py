"""No count depends on a clock other than the append times of records: single schedules.

test_properties.py has random ones.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest

from support.batches import DAY_MS, HOUR_MS, Batch
from support.schedules import BEGIN_MS, TopicRecord
from support.steps import run
from support.tables import Tables, table_settings
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, Table
from tallystream_aggregator.table.clock_record import CLOCK_KEY, clock_value
from tallystream_aggregator.table.restore.latest_rows import LatestRows
from tallystream_aggregator.table.restore.restore import restore
from tallystream_aggregator.table.shards import shard_of

if TYPE_CHECKING:
    from collections.abc import Sequence


class Schedule:
    """Builds the records of a topic. Times are hours of the broker's clock, from BEGIN_MS on."""

    def __init__(self) -> None:
        self.records: list[TopicRecord] = []

    def snapshot(
        self,
        instance: str,
        count: int,
        *,
        at: float,
        seq: int,
        life: str,
        prev: float | None = None,
        partition: int = 0,
        name: str = "n",
    ) -> Schedule:
        """Append a snapshot of one counter and one gauge. `prev` is in hours, too."""
        header = {"v": 1, "app": "shop", "life": life, "part": 0, "seq": seq, "ts": 0, "every_ms": 1000, "final": False}
        header |= {"prev": None if prev is None else _ms(prev)}
        metrics = [{"type": "counter", "name": name, "count": count}, {"type": "gauge", "name": "g", "value": count}]
        return self.append(instance, json.dumps(header | {"metrics": metrics}).encode(), at=at, partition=partition)

    def append(self, instance: str, value: bytes | None, *, at: float, partition: int = 0) -> Schedule:
        """Append a record."""
        offset = sum(record.partition == partition for record in self.records)
        self.records.append(TopicRecord(instance.encode(), value, _ms(at), partition, offset))
        return self

    def tables(self, *ends: dict[int, int], **chosen: int) -> Tables:
        """Return the tables after batches that end at these offsets. By default each record is a batch."""
        tables = Tables(self.records, table_settings(**chosen))
        batches = list(ends)
        if not batches:
            end = dict.fromkeys({record.partition for record in self.records}, 0)
            for record in self.records:
                end = end | {record.partition: record.offset + 1}
                batches.append(end)
        for number, end in enumerate(batches):
            tables.batch(Batch(end, all_read=number + 1 == len(batches)))
        return tables


def _ms(hours: float) -> int:
    return BEGIN_MS + round(hours * HOUR_MS)


def life(hours: float = 0) -> str:
    """Return the ULID of a life that began at that hour."""
    return new_ulid(_ms(hours))


def count_of(tables: Tables) -> int:
    """Return the published count of the app `shop`."""
    return sum(fields["count"] for key, fields in tables.sums.items() if key[0] == "shop" and "count" in fields)


@pytest.mark.parametrize(("ahead", "outage"), [(25, 1), (13, 11.5), (72, 1), (72, 23)])
def test_a_broker_clock_that_was_ahead_refuses_no_record_of_another_instance(ahead: float, outage: float) -> None:
    """The append time of one record is `ahead` hours ahead, at the end of an outage. The count is exact, 1,799."""
    schedule, one = Schedule(), life()
    schedule.snapshot("app-1", 10, at=0, seq=1, life=one)
    schedule.append("script", b'{"name":"n","value":1}', at=outage - 0.1 + ahead)
    prev = 0.0
    for seq in range(2, 60):
        at = outage + (seq - 2) * 2
        schedule.snapshot("app-1", min(1799, 400 * seq), at=at, seq=seq, life=one, prev=prev)
        prev = at
    tables = schedule.tables()
    assert (count_of(tables), tables.dead) == (1799, {})


@pytest.mark.parametrize(
    "ends",
    [
        ({0: 36, 1: 0}, {0: 36, 1: 15}),
        ({0: 36, 1: 14}, {0: 36, 1: 15}),
        ({0: 0, 1: 15}, {0: 36, 1: 15}),
        ({0: 0, 1: 15}, {0: 20, 1: 15}, {0: 36, 1: 15}),
        ({0: 20, 1: 15}, {0: 36, 1: 15}),
        ({0: 36, 1: 15},),
    ],
)
def test_a_backlog_of_an_instance_that_moved_is_counted_once_wherever_batches_end(
    ends: tuple[dict[int, int], ...],
) -> None:
    """An instance moves to an added partition. Its count is 2,016, whichever partition's records are read first."""
    schedule, one = Schedule(), life()
    for hour in range(36):
        schedule.snapshot("app-1", 28 * (hour + 1), at=hour, seq=hour + 1, life=one, prev=hour - 1 if hour else None)
    for hour in range(36, 50):
        later = 1008 + 72 * (hour - 35)
        schedule.snapshot("app-1", later, at=hour, seq=hour + 1, life=one, prev=hour - 1, partition=1)
    schedule.append("script", b'{"name":"n","value":1}', at=80, partition=1)
    tables = schedule.tables(*ends)
    assert (count_of(tables), tables.dead) == (2016, {})


@pytest.mark.parametrize(("outage", "first", "wanted"), [(7, 10, 20), (23, 10, 20), (30, 110, 160)])
def test_a_record_counts_less_than_a_day_after_its_prev(outage: float, first: int, wanted: int) -> None:
    """However long its life was silent. A later one is refused, and the reporter continues with a new life."""
    schedule, one = Schedule(), life()
    schedule.snapshot("app-1", first, at=0, seq=1, life=one)
    schedule.append("script", b'{"name":"n","value":1}', at=outage - 0.1)
    schedule.snapshot("app-1", wanted, at=outage, seq=2, life=one, prev=0)
    if outage < 24:
        schedule.snapshot("app-1", wanted, at=outage + 0.5, seq=3, life=one, prev=outage)
    else:
        schedule.snapshot("app-1", wanted - first, at=outage, seq=1, life=life(outage))
    tables = schedule.tables()
    assert (count_of(tables), len(tables.dead)) == (wanted, int(outage >= 24))


def test_silent_lives_stay_silent_after_a_rebuild_of_several_shards() -> None:
    """Five lives are silent, and one life in the other shard reports. After a rebuild only that one is living."""
    schedule = Schedule()
    names = [f"app-{number}" for number in range(99)]
    for name in [name for name in names if shard_of(name.encode(), 2) == 1][:5]:
        schedule.snapshot(name, 100, at=0, seq=1, life=life())
    living = next(name for name in names if shard_of(name.encode(), 2) == 0)
    schedule.snapshot(living, 1, at=2, seq=1, life=life(2))
    by_shard = [[r for r in schedule.records if shard_of(r.key, 2) == number] for number in (0, 1)]
    latest_rows = LatestRows()
    shards = [Table(State(shard=number, shards=2), table_settings()) for number in (0, 1)]
    assert _gauge(shards, by_shard, latest_rows, _ms(2)) == (501, 6)
    clock = TopicRecord(CLOCK_KEY, clock_value(0), _ms(3), 0, len(schedule.records))
    assert _gauge(shards[1:], [[clock]], latest_rows, _ms(3)) == (0, 0)
    rebuilt = [Table(state, table_settings()) for state in restore(latest_rows).states]
    assert _gauge(rebuilt, [[], []], latest_rows, _ms(3) + 500) == (1, 1)


def _gauge(
    shards: Sequence[Table], by_shard: Sequence[list[TopicRecord]], latest_rows: LatestRows, now_ms: int
) -> tuple[Any, int]:
    """Run a batch of these shards. Return the sum of their gauge and the number of their living lives."""
    total, lives = 0.0, 0
    for table, records in zip(shards, by_shard, strict=True):
        read = [Record("metrics", r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in records]
        changes = run(table, read)
        for row in changes.rows:
            latest_rows.add(row.key, row.value(), (1, now_ms), table.state.shard)
        for life_of in [one for every in table.state.lives.values() for one in every]:
            if life_of.living:
                lives += 1
                total += sum(r.values[0] for n, r in life_of.rows.items() if table.state.metrics[n][2] == "gauge")
    return total, lives


def test_silent_lives_stay_silent_in_a_shard_that_has_not_run_since_the_table_was_split() -> None:
    """A table is split into two shards, only one of them runs a batch, and the checkpoint is lost.

    The rebuilt other shard knows the time of the partition, too.
    """
    names = [f"app-{number}" for number in range(99)]
    silent, living = (next(name for name in names if shard_of(name.encode(), 2) == number) for number in (1, 0))
    schedule = Schedule().snapshot(silent, 100, at=0, seq=1, life=life())
    one = life(2)
    for seq in (1, 2, 3):
        schedule.snapshot(living, 1, at=2, seq=seq, life=one)
    other = next(name for name in names if shard_of(name.encode(), 2) == 1 and name != silent)
    schedule.snapshot(other, 1, at=2, seq=1, life=life(2), partition=1)
    tables = Tables(schedule.records, table_settings(), 1, random.Random(1))
    for end in (1, 2):
        tables.batch(Batch({0: end, 1: 0}, all_read=False))
    tables.rebuild(1)
    tables.batch(Batch({0: 3, 1: 0}, all_read=False))
    assert [state.published for state in tables.states] == [True, False]
    tables.rebuild()
    tables.batch(Batch({0: 4, 1: 1}, all_read=True))
    gauge = tables.sums["shop", "g", "gauge", ()]
    assert (gauge["sum"], gauge["lives"]) == (2, 2)


def test_lives_count_once_though_checkpoints_are_lost_while_they_are_forgotten() -> None:
    """Checkpoints are lost several times, also while lives are forgotten. Each life counts once after every batch."""
    schedule = Schedule()
    for number in range(8):
        schedule.snapshot(f"app-{number}", 10, at=0, seq=1, life=life(), name=f"n{number % 3}")
    first = len(schedule.records)
    for begin in (24, 24 + 24 * 7, 24 * 31):
        for hour in range(10):
            schedule.append("tallystream-clock", clock_value(_ms(begin + hour / 2)), at=begin + hour / 2)
    for seed in range(20):
        chance = random.Random(seed)
        tables = Tables(schedule.records, table_settings(forget_after_ms=7 * DAY_MS))
        for offset in range(1, len(schedule.records) + 1):
            batch = Batch({0: offset}, all_read=True)
            while offset > first and chance.random() < 0.5:
                tables.batch(batch, written=chance)
                tables.rebuild()
            tables.batch(batch)
            assert count_of(tables) == 10 * min(offset, 8), (seed, offset)
        assert not tables.dead


def test_rows_of_an_earlier_split_do_not_count_while_the_table_is_split_again() -> None:
    """Lives move to other partitions of `metrics-table` twice and are forgotten, and checkpoints are lost meanwhile.

    Their rows in the partitions of an earlier split and of an abandoned split are ignored.
    """
    schedule = Schedule()
    for number in range(12):
        schedule.snapshot(f"app-{number}", 10, at=0, seq=1, life=life(), name=f"n{number % 3}")
    first = len(schedule.records)
    for hour in range(24 * 8, 24 * 8 + 8):
        schedule.append("tallystream-clock", clock_value(_ms(hour)), at=hour)
    for seed in range(8):
        chance = random.Random(seed)
        tables = Tables(schedule.records, table_settings(forget_after_ms=7 * DAY_MS), 2, chance)
        tables.batch(Batch({0: first}, all_read=True))
        for end, more in ((first, 1), (first, 1), (first + 8, 2), (first + 8, 2)):
            batch = Batch({0: end}, all_read=True)
            tables.rebuild(more)
            while chance.random() < 0.7:
                tables.batch(batch, written=chance)
                tables.rebuild()
                tables.batch(Batch({0: 0}, all_read=True))
                assert count_of(tables) == 120, (seed, tables.shards)
            tables.batch(batch)
            tables.compact()
        assert count_of(tables) == 120, seed
