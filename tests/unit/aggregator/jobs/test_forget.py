"""The plan of `tallystream forget`: its records, the lives, and the sums before and after."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from support import otlp
from support.steps import apply, publish, run
from tallystream.errors import TallystreamError
from tallystream.ulid import new_ulid
from tallystream_aggregator.jobs.forget import Plan, has_reached, plan
from tallystream_aggregator.stream.positions import PositionsRow
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.table.decode import Forget
from tallystream_aggregator.table.shards import shard_of, shards_of
from tallystream_aggregator.table.sum_tags import SumTags

BEGIN_MS = 1_700_000_000_000
LARGEST = 2**63 - 1
A, B = (new_ulid(BEGIN_MS + number) for number in range(2))
INSTANCES = ("app-1", "app-11")
"""One instance for each of two shards."""


def states(number: int) -> list[State]:
    """Return the states of a table: a life in each of two partitions, and one more of the first instance."""
    tables = [Table(State(shard=shard, shards=number)) for shard in range(number)]
    published = ((INSTANCES[0], A, 0, LARGEST), (INSTANCES[0], B, 0, 3), (INSTANCES[1], A, 1, 4))
    for offset, (instance, life, partition, count) in enumerate(published):
        header = {"v": 1, "app": "shop", "life": life, "part": 0, "seq": 1, "ts": 0, "every_ms": 1000, "final": False}
        metrics = [
            {"type": "counter", "name": "n", "count": count},
            {"type": "histogram", "name": "h", "count": 1, "sum": count, "min": count, "max": count},
        ]
        value = json.dumps(header | {"metrics": metrics}).encode()
        table = tables[shard_of(instance.encode(), number)]
        run(table, [Record("metrics", partition, offset, BEGIN_MS + offset, instance.encode(), value)])
    return [table.state for table in tables]


def changes(found: Plan, field: str) -> dict[str, tuple[Any, Any]]:
    """Return a field of each sum before and after."""
    return {one.before.metric[1]: (getattr(one.before, field), getattr(one.after, field)) for one in found.sums}


@pytest.mark.parametrize("shards", [1, 2])
def test_a_life_is_removed_by_one_record_in_its_partition(shards: int) -> None:
    """The new sums have no overflow, and new extremes."""
    found = plan(states(shards), Forget(life=A), INSTANCES[0])
    (record,) = found.records
    assert (record.topic, record.partition, record.key) == ("metrics", 0, INSTANCES[0].encode())
    assert json.loads(record.value or b"") == {"v": 1, "forget": {"life": A}}
    assert found.lives == [("shop", INSTANCES[0], A, True, 2)]
    assert changes(found, "count") == {"h": (3, 2), "n": (LARGEST, 7)}
    assert [(one.before.overflow, one.after.overflow) for one in found.sums if one.before.metric[1] == "n"] == [
        (True, False)
    ]
    (h,) = (one.after for one in found.sums if one.before.metric[1] == "h")
    assert (h.min, h.max) == (3, 4)


@pytest.mark.parametrize("shards", [1, 2])
def test_a_metric_is_removed_by_a_record_for_each_shard_in_each_partition(shards: int) -> None:
    """Its sum becomes 0, and other metrics do not change."""
    found = plan(states(shards), Forget(metric="n", type="counter"), None)
    places = {(record.partition, shard_of(record.key, shards)) for record in found.records}
    assert places == {(partition, shard) for partition in (0, 1) for shard in range(shards)}
    assert len(found.records) == len(places)
    assert {json.loads(record.value or b"")["forget"].get("shards", 1) for record in found.records} == {shards}
    assert [(life, metrics) for _, _, life, _, metrics in found.lives] == [(A, 2), (B, 2), (A, 2)]
    assert changes(found, "count") == {"n": (LARGEST, 0)}


@pytest.mark.parametrize(
    ("forget", "instance", "error"),
    [
        (Forget(), "app-2", "instance app-2: no life in the table matches"),
        (Forget(app="mail"), INSTANCES[0], "no life in the table matches"),
        (Forget(metric="m"), None, "metric m: nothing in the table matches"),
        (Forget(metric="n", tags={"a": "b"}), None, "metric n: nothing in the table matches"),
    ],
)
def test_a_name_without_a_match_is_an_error(forget: Forget, instance: str | None, error: str) -> None:
    """So a misspelt name is noticed."""
    with pytest.raises(TallystreamError, match=error):
        plan(states(1), forget, instance)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(("forget", "instance"), [(Forget(metric="n"), None), (Forget(), INSTANCES[0])])
def test_what_arrived_by_otlp_is_removed(shards: int, forget: Forget, instance: str | None) -> None:
    """Applied by the aggregator, the records remove what the plan says, from the streams in all partitions."""
    settings = TableSettings(otlp_topics=(otlp.TOPIC,))
    tables = [Table(State(shard=shard, shards=shards), settings) for shard in range(shards)]

    def append(record: Record) -> None:
        for shard in shards_of(record, shards, settings.otlp_topics):
            apply(tables[shard], [record])

    for partition in range(2):
        for place, name in enumerate(INSTANCES):
            began_ns = otlp.BEGIN_NS + 10 * partition + place
            metric = otlp.counter("n", otlp.number(1 + partition + 4 * place, began_ns))
            value = otlp.encode(otlp.resource_metrics([metric], service__name="shop", service__instance__id=name))
            append(Record(otlp.TOPIC, partition, place, BEGIN_MS + 2000, None, value))
    for table in tables:
        publish(table)
    found = plan(copy.deepcopy([table.state for table in tables]), forget, instance)
    assert changes(found, "count") == {"n": (14, 0 if instance is None else 11)}
    for offset, record in enumerate(found.records):
        append(Record(record.topic, record.partition, 10 + offset, BEGIN_MS + 3000, record.key, record.value))
    assert [letter for table in tables for letter in publish(table).dead] == []
    left = [int(one.partial.totals()["count"] or 0) for table in tables for one in table.shard_sums([0])]
    assert sum(left) == (0 if instance is None else 11)


@pytest.mark.parametrize("shards", [1, 2])
def test_the_metrics_of_one_tag_are_removed_from_a_sum_without_this_tag(shards: int) -> None:
    """The plan has the one sum, without the share of the pod. Sums that do not change are left out."""
    tables = [Table(State(shard=shard, shards=shards, sum_tags=SumTags(drop=("pod",)))) for shard in range(shards)]
    header = {"v": 1, "app": "shop", "life": A, "part": 0, "seq": 1, "ts": 0, "every_ms": 1000, "final": False}
    for offset, instance in enumerate(INSTANCES):
        metrics = [
            {"type": "counter", "name": "n", "count": 10 ** (2 * offset + pod), "tags": {"pod": str(pod)}}
            for pod in (0, 1)
        ]
        value = json.dumps(header | {"metrics": metrics}).encode()
        table = tables[shard_of(instance.encode(), shards)]
        run(table, [Record("metrics", 0, offset, BEGIN_MS, instance.encode(), value)])
    found = plan([table.state for table in tables], Forget(metric="n", tags={"pod": "1"}), None)
    assert [one.before.metric for one in found.sums] == [("shop", "n", "counter", ())]
    assert changes(found, "count") == {"n": (1111, 101)}


def test_it_waits_until_the_sums_of_every_shard_include_the_records() -> None:
    """With several shards the combiner says so. It has no positions until each shard has some."""
    ends = {("metrics", 0): 5, ("metrics", 1): 3}
    behind, there = {"metrics": {"0": 5, "1": 2}}, {"metrics": {"0": 6, "1": 3}}

    def row(of: int, **positions: Any) -> PositionsRow:
        fields: dict[str, Any] = {"shard": 0, "of": of, "claim": (1, 0), "step": 1, "positions": {}, "topics": {}}
        return PositionsRow(**fields | positions)

    assert not has_reached(None, ends)
    assert [has_reached(row(1, positions=one), ends) for one in ({}, behind, there)] == [False, False, True]
    of_shards: list[dict[str, Any]] = [{}, {"0": there}, {"0": there, "1": behind}, {"0": there, "1": there}]
    assert [has_reached(row(2, shards=one), ends) for one in of_shards] == [False, False, False, True]
