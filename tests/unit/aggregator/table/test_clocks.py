"""No count depends on a clock other than the append times of records: single schedules.

test_properties.py has random ones.
"""

from __future__ import annotations

import json
import random

import pytest

from support.divisions import DAY_MS, HOUR_MS, divide
from support.schedules import BEGIN_MS, TopicRecord
from support.tables import Tables, table_settings
from tallystream.ulid import new_ulid
from tallystream_aggregator.table.records.decode import clock_value
from tallystream_aggregator.table.records.shards import shard_of


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

    def tables(self, *ends: dict[int, int]) -> Tables:
        """Return the tables after steps that end at these offsets. By default each record is a step."""
        tables = Tables(self.records, table_settings())
        for end in ends or divide(self.records, [1]):
            tables.step(end)
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
def test_a_backlog_of_an_instance_that_moved_is_counted_once_wherever_steps_end(
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


@pytest.mark.parametrize("from_rows", [False, True])
def test_silent_lives_stay_silent_in_a_table_that_begins_again(*, from_rows: bool) -> None:
    """Five lives are silent, and one life in the other shard reports. Only that one is living, also afterwards."""
    schedule = Schedule()
    names = [f"app-{number}" for number in range(99)]
    silent = [name for name in names if shard_of(name.encode(), 2) == 1][:5]
    for name in silent:
        schedule.snapshot(name, 100, at=0, seq=1, life=life())
    living = next(name for name in names if shard_of(name.encode(), 2) == 0)
    schedule.snapshot(living, 1, at=2, seq=1, life=life(2))
    tables = Tables(schedule.records, table_settings(), 2)
    for ends, wanted in (({0: 5}, (500, 5)), ({0: 6}, (1, 1))):
        tables.step(ends)
        tables.begin_again(from_rows=from_rows)
        for sums in (tables.sums, tables.all_sums()):
            gauge = sums["shop", "g", "gauge", ()]
            assert (gauge["sum"], gauge["lives"]) == wanted


def test_lives_count_once_though_the_table_begins_again_while_they_are_forgotten() -> None:
    """Each life counts once after every step."""
    schedule = Schedule()
    for number in range(8):
        schedule.snapshot(f"app-{number}", 10, at=0, seq=1, life=life(), name=f"n{number % 3}")
    for begin in (24, 24 + 24 * 7, 24 * 31):
        for hour in range(10):
            schedule.append("tallystream-clock", clock_value(_ms(begin + hour / 2)), at=begin + hour / 2)
    for seed in range(20):
        chance = random.Random(seed)
        tables = Tables(schedule.records, table_settings(forget_after_ms=7 * DAY_MS), 1, chance)
        for offset in range(1, len(schedule.records) + 1):
            if chance.random() < 0.5:
                tables.begin_again(from_rows=chance.random() < 0.5)
            tables.step({0: offset})
            assert count_of(tables) == 10 * min(offset, 8), (seed, offset)
            assert sum(fields.get("count", 0) for fields in tables.all_sums().values()) == 10 * min(offset, 8)
        assert not tables.dead
