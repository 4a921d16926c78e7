"""The comparison on records in memory: it finds wrong sums and dead letters."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.buckets import buckets
from support.malformed import UNDECODABLE
from tallystream_aggregator.verify.advance import Advance
from tallystream_aggregator.verify.check import Difference, Outcome, compare
from tallystream_aggregator.verify.lives import Settings, Tags
from tallystream_aggregator.verify.published import (
    Ends,
    Event,
    PublishedSum,
    PublishedSums,
    parse,
    refused_record,
    unequal,
)
from tallystream_aggregator.verify.replay import Replay

BEGIN_MS = 1_700_000_000_000
LIFE = "01HF7YAT00" + "A" * 16
KEY = b'["shop","counter","n",[]]'
ZERO, ONE = "metrics:0", "metrics:1"


COUNTER = '{"type":"counter","name":"n","count":%d}'


def snapshot(count: int, seq: int, metrics: str = COUNTER) -> bytes:
    """Return a snapshot of an instance that reports every second, with a counter of this count or other metrics."""
    header = f'{{"v":1,"app":"shop","life":"{LIFE}","part":0,"seq":{seq},"ts":0,"every_ms":1000,"final":false'
    return f'{header},"metrics":[{metrics % count if "%d" in metrics else metrics}]}}'.encode()


class Topic:
    """Records of two partitions, with a second between them."""

    def __init__(self) -> None:
        self.records: dict[str, list[tuple[int, int, bytes, bytes | None]]] = {ZERO: [], ONE: []}

    def append(
        self, value: bytes | None, partition: str = ZERO, *, at: int | None = None, instance: str | None = None
    ) -> Topic:
        """Append a record, of the partition's own instance by default, `at` ms after the beginning."""
        rows = self.records[partition]
        at = 1000 * len(rows) if at is None else at
        rows.append((len(rows), BEGIN_MS + at, (instance or f"app-{partition}").encode(), value))
        return self

    def check(
        self,
        *rows: PublishedSum,
        end: Ends | None = None,
        letters: dict[tuple[str, int], int] | None = None,
        events: dict[Event, int] | None = None,
        tags: Tags = Tags(),  # noqa: B008 (it is frozen)
        instances: bool = False,
    ) -> Outcome:
        """Compare what is published with the records up to `end`, by default all. The sums have these tags.

        The numbers of instances are compared only if they are asked for.
        """
        end = {partition: len(records) for partition, records in self.records.items()} if end is None else end
        advance = Advance(Replay(Settings(tags=tags)), {}, {name: iter(rows) for name, rows in self.records.items()})
        advance.finish([end])
        sums = PublishedSums(end, newest={row.identity: row for row in rows})
        outcome = compare(advance, sums, letters=letters, events=events)
        if not instances:
            outcome.differences = [one for one in outcome.differences if (one.identity or "")[1:2] != ("instances",)]
        return outcome


def published(
    key: bytes = KEY, offsets: dict[str, int] | None = None, ts: int = BEGIN_MS, **fields: Any
) -> PublishedSum:
    """Return a row of metrics-agg that includes the first record of partition 0."""
    defaults = {"v": 1, "lives": 1, "instances": 1, "ts": ts} | fields
    return parse(key, json.dumps(defaults | {"offsets": {"metrics": offsets or {"0": 0}}}).encode())


def fields(outcome: Outcome) -> list[tuple[str, Any, Any]]:
    """Return the fields that differ."""
    return [(one.field, one.published, one.replayed) for one in outcome.differences]


@pytest.mark.parametrize("tampered", [{"count": 2}, {"lives": 2}, {"retired": 1}, {"p999": 1.0}, {"count": "1"}])
def test_a_field_that_differs_is_named(tampered: dict[str, Any]) -> None:
    """The difference has the published value, the replayed one and the offsets."""
    ((name, value),) = tampered.items()
    outcome = Topic().append(snapshot(1, 1)).check(published(**{"count": 1} | tampered))
    replayed = {"count": 1, "lives": 1, "retired": 0, "p999": None}[name]
    identity = ("shop", "counter", "n", ())
    assert outcome.differences == [Difference(identity, name, value, replayed, {ZERO: 1})]


def test_the_numbers_of_instances_are_compared() -> None:
    """They are those of the app at the end of the records. A reader takes an absent number for 0."""
    key = b'["shop","instances","tallystream.instances",[]]'
    topic = Topic().append(snapshot(1, 1)).append(snapshot(1, 2), instance="other").append(None, instance="other")
    wanted = published(key, {"0": 2}, instances=1, lives=1, ended=1, silent=0)
    assert fields(topic.check(published(count=1, offsets={"0": 2}), wanted, instances=True)) == []
    assert ("sum", None, "published") in fields(topic.check(instances=True))
    silent = published(key, {"0": 2}, instances=1, lives=1, ended=0, silent=1)
    assert fields(topic.check(published(count=1, offsets={"0": 2}), silent, instances=True)) == [
        ("ended", 0, 1),
        ("silent", 1, None),
    ]


def test_the_sketch_of_a_sum_is_compared_by_its_buckets() -> None:
    """Another form of the same buckets is equal. A sum without the sketch differs."""
    sketch = {"scale": 6, "zero_count": 1, "positive": buckets(0, 1, 0, 0, 2)}
    sums = {"count": 4, "sum": 5, **dict.fromkeys(("p50", "p75", "p95", "p98", "p99", "p999"), 2 ** (3.5 / 64))}
    snapshots = snapshot(1, 1, f'{{"type":"histogram","name":"h","count":4,"sum":5,"sketch":{json.dumps(sketch)}}}')

    def differing(**more: Any) -> list[str]:
        outcome = Topic().append(snapshots).check(published(b'["shop","histogram","h",[]]', **sums, **more))
        return [one.field for one in outcome.differences if one.field == "sketch"]

    assert differing() == ["sketch"]
    assert differing(sketch=sketch) == []
    assert differing(sketch=sketch | {"positive": [*buckets(-1, 0, 1, width=4), *buckets(3, 2, 0)]}) == []
    for wrong in (
        sketch | {"positive": buckets(0, 1, 0, 2)},
        sketch | {"positive": [*buckets(3, 2), *buckets(0, 1)]},  # no sketch: its buckets do not rise
        sketch | {"zero_count": 0},
        sketch | {"scale": 5},
        {"scale": 6},
        {},
        7,
    ):
        assert differing(sketch=wrong) == ["sketch"]
    assert fields(Topic().append(snapshot(1, 1)).check(published(count=1, sketch={"scale": 6}))) == [
        ("sketch", {"scale": 6}, None)
    ]


def test_a_sum_beyond_64_bits_is_compared_with_its_flag() -> None:
    """The largest number is correct if the replayed sum exceeds it, and only with `overflow`."""
    most = 2**63 - 1
    topic = Topic().append(snapshot(most, 1)).append(snapshot(most, 1), ONE)
    both = {"lives": 2, "instances": 2, "offsets": {"0": 0, "1": 0}}
    assert fields(topic.check(published(count=most, overflow=True, **both))) == []
    topic = Topic().append(snapshot(most, 1)).append(snapshot(most, 1), ONE)
    assert fields(topic.check(published(count=most, **both))) == [("overflow", None, True)]
    assert fields(Topic().append(snapshot(1, 1)).check(published(count=1, overflow=True))) == [("overflow", True, None)]


def test_a_metric_that_no_life_has_needs_no_sum() -> None:
    """A sum that was published before the tombstone must be published again, as empty."""
    topic = Topic().append(snapshot(1, 1)).append(None)
    assert fields(topic.check()) == []
    topic = Topic().append(snapshot(1, 1)).append(None)
    assert fields(topic.check(published(count=1)))[0] == ("count", 1, 0)


def test_a_sum_without_a_record_is_a_difference() -> None:
    """Its count should be 0."""
    invented = published(b'["shop","counter","x",[]]', count=7, lives=0, instances=0)
    assert fields(Topic().append(snapshot(1, 1)).check(published(count=1), invented)) == [("count", 7, 0)]


def test_each_refused_record_has_its_dead_letters_exactly_once() -> None:
    """Up to the end, exactly the records that the replay refuses have dead letters, one for each reason."""
    topic = Topic().append(b"{").append(snapshot(1, 1)).append(b"{").append(b"{").append(b"{")
    row = published(count=1, offsets={"0": 3})
    letters = {(ZERO, 1): 1, (ZERO, 2): 1, (ZERO, 3): 2}
    found = topic.check(row, end={ZERO: 4}, letters=letters)
    (reason,) = Replay().apply(ZERO, BEGIN_MS, b"app-1", b"{")
    places = [(published_, replayed) for _, published_, replayed in fields(found)]
    assert places == [
        (None, f"1, metrics, partition 0, offset 0: {reason}"),
        ("1, metrics, partition 0, offset 1: -", None),
        (
            f"2, metrics, partition 0, offset 3: {reason}",
            f"1, metrics, partition 0, offset 3: {reason}",
        ),
    ]
    assert found.letters == 2


def restart(partition: str, offset: int, instance: str, life: str) -> Event:
    """Return the event of a new life."""
    return (partition, offset, "restart", "shop", instance, life, BEGIN_MS + 1000 * offset, "")


def test_events_of_an_instance_in_several_partitions_may_depend_on_the_order() -> None:
    """Which of its lives is the restart, the table says by what it read first. Other instances' events are compared."""
    other = LIFE[:-1] + "B"
    in_one = snapshot(1, 1).replace(LIFE.encode(), other.encode())
    first_zero, first_one = restart(ONE, 0, "moved", other), restart(ZERO, 0, "moved", LIFE)
    for event in (first_zero, first_one):
        topic = Topic().append(snapshot(1, 1), instance="moved").append(in_one, ONE, instance="moved")
        rows = published(count=2, lives=2, instances=1, offsets={"0": 0, "1": 0})
        outcome = topic.check(rows, events={event: 1})
        assert (outcome.moved, "events" in [one[0] for one in fields(outcome)]) == (1, False)
    topic = Topic().append(snapshot(1, 1), instance="still").append(in_one, instance="still")
    outcome = topic.check(published(count=2, lives=2, offsets={"0": 1}), events={})
    assert [one[0] for one in fields(outcome)].count("events") == 1


def test_partitions_are_read_side_by_side() -> None:
    """A life that moved on the fourth day is not forgotten by the clock of its first partition on the eighth."""
    day_ms = 86_400_000
    clock = b'{"v":1,"wall_ms":%d}' % (BEGIN_MS + 8 * day_ms)
    later = snapshot(2, 2).replace(b'"ts":0', b'"ts":0,"prev":%d' % (BEGIN_MS + 4 * day_ms))
    topic = Topic().append(snapshot(1, 1), instance="moved").append(later, ONE, at=4 * day_ms, instance="moved")
    topic.append(clock, at=8 * day_ms, instance="tallystream-clock")
    assert topic.check(published(count=2, offsets={"0": 1, "1": 0})).differences == []


def test_quantiles_are_equal_to_six_digits_and_counts_exactly() -> None:
    """A quantile is rounded, a count is an integer."""
    assert not unequal({"p99": 1.0}, {"p99": 1.0 + 4e-7})
    assert unequal({"p99": 1.0}, {"p99": 1.0 + 1e-5})
    assert unequal({"count": 2**60}, {"count": 2**60 + 1})


@pytest.mark.parametrize(
    "published", [[], {}, "1", True, None, 10**400, float("inf"), float("nan")], ids=lambda value: str(value)[:5]
)
@pytest.mark.parametrize("field", ["p99", "count", "min"])
def test_a_value_that_the_table_never_publishes_is_a_difference(field: str, published: object) -> None:
    """Another program wrote the row. It is reported, and the comparison continues."""
    assert unequal({field: published}, {field: 1})


HOSTILE = [
    *UNDECODABLE.values(),
    b'{"ts":Infinity}',
    b'{"ts":0,"offsets":{"metrics":{"0":Infinity}}}',
    b'{"ts":0,"offsets":[]}',
]


@pytest.mark.parametrize("value", HOSTILE)
def test_records_that_are_not_sums_are_counted_and_skipped(value: bytes) -> None:
    """The value or the key is not that of a sum."""
    sums = PublishedSums({})
    sums.add(KEY, value)
    sums.add(value, b'{"ts":0}')
    assert (sums.unreadable, sums.newest) == (2, {})


@pytest.mark.parametrize("value", [None, b"[]", b'{"topic":"m","partition":0,"offset":1e999}', *UNDECODABLE.values()])
def test_a_record_that_is_not_a_dead_letter_is_ignored(value: bytes | None) -> None:
    """It is a row of metrics-dead without the place of a record."""
    assert refused_record(value) is None
