"""Forget records remove lives and metrics from the sums, of lives and among the forgotten ones (rule 10)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.steps import BEGIN_MS, FIRST, SECOND, Topic, counter, run
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.table.records.decode import CLOCK_KEY, Forget, clock_value, read_value, shard_of
from tallystream_aggregator.table.records.refusals import Refusal
from tallystream_aggregator.times import DAY_MS, HOUR_MS

LARGEST = 2**63 - 1


def forget(topic: Topic, key: bytes = b"any", at: int = 0, **what: Any) -> Topic:
    """Append a forget record and run a step with it."""
    return topic.append(key, json.dumps({"v": 1, "forget": what}).encode(), at)


def size(minimum: float, maximum: float) -> dict[str, Any]:
    """Return a histogram named `size`, of two values."""
    return {"type": "histogram", "name": "size", "count": 2, "sum": minimum + maximum, "min": minimum, "max": maximum}


def test_forgetting_a_life_keeps_the_other_lives_of_its_instance() -> None:
    """A forget record with a life removes only that life. Without one it removes all lives of its instance."""
    topic = Topic().snapshot(counter(LARGEST)).snapshot(counter(7), life=SECOND)
    topic.snapshot(counter(5), life=new_ulid(BEGIN_MS), key=b"app-2")
    assert (topic.sum().lives, topic.sum().instances, topic.sum().overflow) == (3, 2, True)
    forget(topic, b"app-1", life=FIRST)
    assert (topic.sum().count, topic.sum().lives, topic.sum().instances, topic.sum().overflow) == (12, 2, 2, False)
    assert forget(topic, b"app-1", app="mail").changes.totals == []
    forget(topic, b"app-1")
    assert (topic.sum().count, topic.sum().lives, topic.sum().instances) == (5, 1, 1)


def test_a_metric_is_removed_from_living_silent_and_forgotten_lives() -> None:
    """A sum that overflowed fits again, wherever its lives are. Other metrics keep their values."""
    at, living = 8 * DAY_MS, new_ulid(BEGIN_MS + 8 * DAY_MS)
    topic = Topic(TableSettings(forget_after_ms=7 * DAY_MS)).snapshot(counter(LARGEST), size(1, 90), key=b"gone")
    topic.append(CLOCK_KEY, clock_value(BEGIN_MS + at), at)
    assert [sums.forgotten for sums in topic.table.state.forgotten_sums.values()] == [1, 1]
    topic.snapshot(counter(LARGEST), size(2, 80), life=SECOND, key=b"silent", prev=BEGIN_MS + at, at=at)
    at += HOUR_MS
    topic.snapshot(counter(LARGEST), size(3, 70), life=living, key=b"living", at=at)
    assert (topic.sum().overflow, topic.sum().lives) == (True, 1)
    forget(topic, metric="n", at=at)
    assert [total.name for total in topic.changes.totals] == ["n"]
    assert (topic.sum().count, topic.sum().lives, topic.sum().instances) == (0, 0, 0)
    topic.snapshot(counter(3), size(4, 60), life=living, seq=2, key=b"living", at=at)
    assert (topic.sum().count, topic.sum().lives, topic.sum().instances) == (3, 1, 1)
    assert (topic.sum("size").count, topic.sum("size").min, topic.sum("size").max) == (6, 1, 90)
    forget(topic, metric="size", at=at)
    topic.snapshot(counter(3), size(5, 50), life=living, seq=3, key=b"living", at=at)
    row = topic.sum("size")
    assert (row.count, row.sum, row.min, row.max) == (2, 55, 5, 50)


def test_a_forget_record_for_another_number_of_shards_is_refused() -> None:
    """The record is a dead letter, because it would not reach all shards of this table."""
    key = next(key for key in (b"x%d" % n for n in range(9)) if shard_of(key, 2) == 0)
    record = Record("metrics", 0, 0, BEGIN_MS, key, Forget(metric="orders", shards=2).value())
    found = {shards: run(Table(State(shard=0, shards=shards)), [record]).dead for shards in (1, 2)}
    assert [letter.reason for letter in found[1]] == ["forget: the record is for 2 shards and the table has 1"]
    assert found[2] == []


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


def test_a_forget_record_reads_as_it_was_written() -> None:
    """A record that is written and read is equal. In a record of another form, the field `forget` is ignored."""
    for one in (Forget(), Forget(app="shop", life=FIRST), Forget(metric="a", tags={"b": "c"}, type="timer", shards=3)):
        assert read_value(one.value(), 10) == one
    assert not isinstance(read_value(b'{"name":"a","value":1,"forget":{}}', 10), Forget)


def test_an_instance_of_many_lives_counts_while_one_of_them_has_the_metric() -> None:
    """One of two lives that have the metric is forgotten, among twenty that are living."""
    topic, many = Topic(), [new_ulid(BEGIN_MS + number) for number in range(20)]
    for number, life in enumerate(many):
        topic.snapshot(counter(1, "n" if number < 2 else f"m-{number}"), life=life)
    for number, left in enumerate([1, 0]):
        forget(topic, b"app-1", life=many[number])
        assert (topic.sum().count, topic.sum().lives, topic.sum().instances) == (left, left, left)
