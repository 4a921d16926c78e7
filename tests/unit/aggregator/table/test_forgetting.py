"""Forget records remove lives and metrics from the sums, of lives and among the forgotten ones (rule 10)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from support.divisions import DAY_MS, HOUR_MS
from support.schedules import BEGIN_MS, TopicRecord
from support.steps import apply
from support.tables import Tables, table_settings
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.table.records.decode import Forget, clock_value, read_value
from tallystream_aggregator.table.records.refusals import Refusal
from tallystream_aggregator.table.records.shards import shard_of

LARGEST = 2**63 - 1
COUNTER = ("shop", "orders", "counter", ())


class Topic:
    """Builds the records of a topic, and a table that reads them. Each `read` is a step."""

    def __init__(self, **chosen: int) -> None:
        self.records: list[TopicRecord] = []
        self.now_ms = BEGIN_MS
        self.tables = Tables([], table_settings(**chosen))
        self._seqs: dict[str, int] = {}
        self._read = 0

    def snapshot(self, instance: str, life: str, *metrics: dict[str, Any], partition: int = 0) -> None:
        """Append the next snapshot of a life."""
        self._seqs[life] = seq = self._seqs.get(life, 0) + 1
        header = {
            "v": 1,
            "app": "shop",
            "life": life,
            "part": 0,
            "seq": seq,
            "ts": 0,
            "every_ms": 60_000,
            "final": False,
        }
        self.append(instance, json.dumps(header | {"metrics": metrics}).encode(), partition)

    def forget(self, instance: str, partition: int = 0, **what: Any) -> None:
        """Append a forget record."""
        self.append(instance, json.dumps({"v": 1, "forget": what}).encode(), partition)

    def append(self, instance: str, value: bytes | None, partition: int = 0) -> None:
        """Append a record a second after the one before."""
        self.now_ms += 1000
        offset = sum(record.partition == partition for record in self.records)
        self.records.append(TopicRecord(instance.encode(), value, self.now_ms, partition, offset))

    def pass_time(self, hours: float) -> None:
        """Let time pass, append a clock record to every partition, and read."""
        self.now_ms += round(hours * HOUR_MS)
        for partition in sorted({record.partition for record in self.records}):
            self.append("tallystream-clock", clock_value(self.now_ms), partition)
        self.read()

    def read(self, *, from_rows: bool = False) -> dict[str, Any]:
        """Read the new records in one step, and return the sum of the counter `orders`."""
        self.tables.extend(self.records[self._read :])
        self._read = len(self.records)
        if from_rows:
            self.tables.begin_again(from_rows=True)
        self.now_ms += 1000
        self.tables.step(Counter(record.partition for record in self.records))
        return self.tables.sums.get(COUNTER, {})


def orders(count: int, **tags: str) -> dict[str, Any]:
    """Return a counter named `orders`."""
    return {"type": "counter", "name": "orders", "count": count} | ({"tags": tags} if tags else {})


def size(minimum: float, maximum: float) -> dict[str, Any]:
    """Return a histogram named `size`, of two values."""
    return {"type": "histogram", "name": "size", "count": 2, "sum": minimum + maximum, "min": minimum, "max": maximum}


def life(ms: int = BEGIN_MS) -> str:
    """Return a new life's ULID."""
    return new_ulid(ms)


def test_forgetting_a_life_keeps_the_other_lives_of_its_instance() -> None:
    """A forget record with a life removes only that life. Without one it removes all lives of its instance."""
    topic, broken, good = Topic(), life(), life()
    topic.snapshot("a", broken, orders(LARGEST))
    topic.snapshot("a", good, orders(7))
    topic.snapshot("b", life(), orders(5))
    assert topic.read() == {"count": LARGEST, "lives": 3, "instances": 2, "overflow": True}
    topic.forget("a", life=broken)
    assert topic.read() == {"count": 12, "lives": 2, "instances": 2}
    topic.forget("a", app="mail")
    assert topic.read()["count"] == 12
    topic.forget("a")
    assert topic.read() == {"count": 5, "lives": 1, "instances": 1}
    assert not topic.tables.dead


def test_a_life_that_still_publishes_counts_in_full_again() -> None:
    """Values are absolute: the next snapshot of a living life restores its counts. An older snapshot does not."""
    topic, one = Topic(), life()
    topic.snapshot("a", one, orders(10))
    older = topic.records[-1].value
    topic.snapshot("a", one, orders(20))
    topic.forget("a")
    topic.append("a", older)
    assert topic.read()["count"] == 0
    topic.snapshot("a", one, orders(21))
    assert topic.read()["count"] == 21


def test_a_metric_is_removed_from_living_silent_and_forgotten_lives() -> None:
    """A sum that overflowed fits again, wherever its lives are. Other metrics keep their values."""
    topic = Topic(forget_after_ms=7 * DAY_MS)
    topic.snapshot("gone", life(), orders(LARGEST), size(1, 90))
    topic.pass_time(24 * 8)
    state = topic.tables.states[0]
    assert [forgotten_sums.forgotten for forgotten_sums in state.forgotten_sums.values()] == [1, 1]
    topic.snapshot("silent", life(topic.now_ms), orders(LARGEST), size(2, 80))
    topic.pass_time(2)
    living = life(topic.now_ms)
    topic.snapshot("living", living, orders(LARGEST), size(3, 70))
    assert topic.read()["overflow"] is True
    topic.forget("x", metric="orders")
    assert topic.read() == {"count": 0, "lives": 0, "instances": 0}
    sizes = topic.tables.sums["shop", "size", "histogram", ()]
    assert (sizes["count"], sizes["min"], sizes["max"]) == (6, 1, 90)
    topic.forget("x", metric="size")
    topic.read()
    topic.snapshot("living", living, orders(3), size(4, 60))
    assert topic.read() == {"count": 3, "lives": 1, "instances": 1}
    sizes = topic.tables.sums["shop", "size", "histogram", ()]
    assert (sizes["count"], sizes["sum"], sizes["min"], sizes["max"]) == (2, 64, 4, 60)


def test_a_forgotten_life_loses_the_metric_too() -> None:
    """The metric is removed completely, also after a rebuild."""
    topic = Topic(forget_after_ms=7 * DAY_MS)
    topic.snapshot("gone", life(), orders(40), size(1, 90))
    topic.pass_time(24 * 8)
    topic.snapshot("other", life(topic.now_ms), size(5, 6))
    topic.forget("x", metric="orders")
    assert topic.read() == {"count": 0, "lives": 0, "instances": 0}
    assert topic.read(from_rows=True) == {"count": 0, "lives": 0, "instances": 0}
    sizes = topic.tables.sums["shop", "size", "histogram", ()]
    assert (sizes["count"], sizes["min"], sizes["max"]) == (4, 1, 90)


def test_metrics_are_selected_by_app_type_and_tags() -> None:
    """A missing field matches every value. A metric matches the tags if it has at least these."""
    topic = Topic()
    topic.snapshot("a", life(), orders(1), orders(2, site="x"), orders(4, site="x", till="1"), orders(8, site="y"))
    topic.snapshot(
        "a", life(), {"type": "gauge", "name": "orders", "value": 5}, {"type": "counter", "name": "o", "count": 1}
    )

    def counts() -> list[int]:
        topic.read()
        return [fields["count"] for key, fields in sorted(topic.tables.sums.items()) if key[2] == "counter"]

    assert counts() == [1, 1, 2, 4, 8]
    topic.forget("x", metric="orders", app="mail")
    topic.forget("x", metric="orders", type="meter")
    topic.forget("x", metric="orders", tags={"site": "z"})
    assert counts() == [1, 1, 2, 4, 8]
    topic.forget("x", metric="orders", tags={"site": "x"})
    assert counts() == [1, 1, 0, 0, 8]
    topic.forget("x", metric="orders", type="gauge")
    assert counts() == [1, 1, 0, 0, 8]
    assert topic.tables.sums["shop", "orders", "gauge", ()]["number"] == 0
    topic.forget("x", metric="orders", app="shop", type="counter")
    assert counts() == [1, 0, 0, 0, 0]


def test_a_metric_is_removed_from_the_lives_of_the_records_partition() -> None:
    """Records of different partitions have no order, so a record removes only the rows of its own partition."""
    topic = Topic()
    topic.snapshot("a", life(), orders(1), partition=0)
    topic.snapshot("b", life(), orders(2), partition=1)
    topic.forget("x", metric="orders", partition=1)
    assert topic.read() == {"count": 1, "lives": 1, "instances": 1}
    topic.forget("x", metric="orders", partition=0)
    assert topic.read() == {"count": 0, "lives": 0, "instances": 0}


def test_a_forget_record_for_another_number_of_shards_is_refused() -> None:
    """The record is a dead letter, because it would not reach all shards of this table."""
    value = Forget(metric="orders", shards=2).value()
    tables = {shards: Table(State(shard=0, shards=shards)) for shards in (1, 2)}
    key = next(key for key in (b"x%d" % n for n in range(9)) if shard_of(key, 2) == 0)
    for table in tables.values():
        apply(table, [Record("metrics", 0, 0, BEGIN_MS, key, value)])
    assert [letter.reason for letter in tables[1].outputs().dead] == [
        "forget: the record is for 2 shards and the table has 1"
    ]
    assert tables[2].outputs().dead == []


def test_each_removal_is_an_event() -> None:
    """There is one event for each life, or for each app and metric name, and none if nothing was removed."""
    topic, one = Topic(), life()
    topic.snapshot("a", one, orders(1), orders(2, site="x"))
    topic.forget("a")
    topic.forget("a")
    topic.snapshot("a", one, orders(1), orders(2, site="x"))
    topic.forget("x", metric="orders")
    topic.forget("x", metric="orders")
    table = Table(State(), TableSettings())
    apply(table, (Record("metrics", r.partition, r.offset, r.timestamp_ms, r.key, r.value) for r in topic.records))
    assert [
        (e.kind, e.app, e.instance, e.life, (e.topic, e.partition, e.offset), e.detail) for e in table.outputs().events
    ] == [
        ("forget", "shop", "a", one, ("metrics", 0, 1), ""),
        ("forget", "shop", "", "", ("metrics", 0, 4), "orders"),
    ]


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("7", "Expected `object`, got `int`"),
        ('{"metric":"a","until":1}', "unknown field `until`"),
        ('{"metric":"a","life":"01ARZ3NDEKTSV4RRFFQ69G5FAV"}', "it names a life and a metric"),
        ('{"type":"counter"}', "it names no metric"),
        ('{"shards":2}', "it names no metric"),
        ('{"tags":{"a":"b"}}', "it names no metric"),
        ('{"metric":"a","type":"gage"}', "the type is not one of counter"),
        ('{"metric":"a","shards":0}', "Expected `int` >= 1"),
        ('{"metric":""}', "Expected `str` of length >= 1"),
        ('{"metric":"a\\u0000"}', "NUL"),
        ('{"life":"x"}', "matching regex"),
    ],
)
def test_an_invalid_forget_record_removes_nothing(what: str, reason: str) -> None:
    """It is a dead letter, also if only a field is unknown: to ignore the field could remove too much."""
    read = read_value(f'{{"v":1,"forget":{what}}}'.encode(), 10)
    assert isinstance(read, Refusal)
    assert read.reason.startswith("forget: ")
    assert reason in read.reason


@pytest.mark.parametrize("version", ["2", "true", '"1"', "null"])
def test_a_forget_record_of_another_version_removes_nothing(version: str) -> None:
    """A record of another version is refused."""
    assert isinstance(read_value(f'{{"v":{version},"forget":{{}}}}'.encode(), 10), Refusal)


def test_a_forget_record_reads_as_it_was_written() -> None:
    """A record that is written and read is equal. In a record of another form, the field `forget` is ignored."""
    for one in (Forget(), Forget(app="shop", life=life()), Forget(metric="a", tags={"b": "c"}, type="timer", shards=3)):
        assert read_value(one.value(), 10) == one
    assert not isinstance(read_value(b'{"name":"a","value":1,"forget":{}}', 10), Forget)
