"""The plan of `tallystream forget` from a table in memory: its records, the lives, and the sums."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.simulation.broker import BEGIN_MS
from support.simulation.checkpoints import Batch
from support.simulation.direct import TOPICS, Direct
from support.tables import table_settings
from tallystream.errors import TallystreamError
from tallystream.ulid import new_ulid
from tallystream_aggregator.jobs.forget import NoMatchError, Plan, has_reached, plan
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.positions import PositionsRow
from tallystream_aggregator.table.records.decode import CLOCK_KEY, Forget, clock_value
from tallystream_aggregator.table.sum_tags import SumTags

A, B = (new_ulid(BEGIN_MS + number) for number in range(2))
INSTANCES = ("app-1", "app-11")
"""One instance for each of two shards."""

PODS = SumTags(drop=("pod",))


def table(shards: int) -> Direct:
    """Return a table: a life in each of two partitions, and one more of the first instance."""
    direct = Direct(shards=shards, partitions=2, table=table_settings(forget_after_ms=50_000))
    for instance, life, partition, count in (
        (INSTANCES[0], A, 0, 2**63 - 1),
        (INSTANCES[0], B, 0, 3),
        (INSTANCES[1], A, 1, 4),
    ):
        header = {"v": 1, "app": "shop", "life": life, "part": 0, "seq": 1, "ts": 0, "every_ms": 1000, "final": False}
        metrics = [
            {"type": "counter", "name": "n", "count": count, "tags": {"pod": "1", "site": "x"}},
            {"type": "counter", "name": "m", "count": count},
        ]
        value = json.dumps(header | {"metrics": metrics}).encode()
        direct.cluster.append(Place(TOPICS.metrics, partition), instance.encode(), value)
    aggregate(direct, 1)
    return direct


def aggregate(direct: Direct, generation: int) -> None:
    """Let all loops of the table read what there is."""
    loops: list[Any] = [direct.loop(shard, sum_tags=PODS) for shard in range(direct.shards)]
    for loop in loops if direct.shards == 1 else [*loops, direct.combiner()]:
        loop.run_epoch(Batch(0), (generation, 0), 3.0)
    direct.flush()


def planned(direct: Direct, forget: Forget, instance: str | None = None) -> Plan:
    """Return the plan."""
    return plan(direct.broker, TOPICS.table, forget, instance)


@pytest.mark.parametrize("shards", [1, 2])
def test_a_life_is_removed_by_one_record_in_its_partition(shards: int) -> None:
    """Its metrics lose something, by the tags that the sums have."""
    found = planned(table(shards), Forget(life=A), INSTANCES[0])
    (record,) = found.records
    assert (record.topic, record.partition, record.key) == (TOPICS.metrics, 0, INSTANCES[0].encode())
    assert json.loads(record.value or b"") == {"v": 1, "forget": {"life": A}}
    assert found.lives == [("shop", INSTANCES[0], A, "living", 2)]
    assert found.sums == [("shop", "m", "counter", ()), ("shop", "n", "counter", (("site", "x"),))]


def test_a_life_that_sent_nothing_for_three_intervals_is_silent() -> None:
    """Its row says that it was living when the row was written."""
    direct = table(1)
    direct.cluster.now_ms += 3_000
    direct.cluster.append(Place(TOPICS.metrics, 0), CLOCK_KEY, clock_value(direct.cluster.now_ms))
    aggregate(direct, 2)
    assert [life.state for life in planned(direct, Forget(metric="m")).lives] == ["silent", "silent", "living"]


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(("forget", "instance", "left"), [(Forget(metric="m"), None, 0), (Forget(), INSTANCES[0], 4)])
def test_the_aggregator_removes_what_the_plan_has(shards: int, forget: Forget, instance: str | None, left: int) -> None:
    """Afterwards nothing is found any more."""
    direct = table(shards)
    for record in planned(direct, forget, instance).records:
        direct.cluster.append(Place(record.topic, record.partition), record.key, record.value)
    aggregate(direct, 2)
    sums = [json.loads(value) for value in direct.values()]
    assert [one["count"] for one in sums if one["name"] == "m"][-1] == left
    assert direct.values(TOPICS.dead) == []
    with pytest.raises(TallystreamError, match="in the table matches"):
        planned(direct, forget, instance)


@pytest.mark.parametrize("shards", [1, 2])
def test_a_metric_of_forgotten_lives_is_found(shards: int) -> None:
    """No life has it any more."""
    direct = table(shards)
    direct.cluster.now_ms += 200_000
    for partition in range(2):
        direct.cluster.append(Place(TOPICS.metrics, partition), CLOCK_KEY, clock_value(direct.cluster.now_ms))
    aggregate(direct, 2)
    found = planned(direct, Forget(metric="m"))
    assert (found.lives, found.sums) == ([], [("shop", "m", "counter", ())])
    assert len(found.records) == 2 * shards
    with pytest.raises(TallystreamError, match="no life in the table matches"):
        planned(direct, Forget(), INSTANCES[0])


@pytest.mark.parametrize(
    ("forget", "instance", "error"),
    [
        (Forget(), "app-2", "instance app-2: no life in the table matches"),
        (Forget(app="mail"), INSTANCES[0], "no life in the table matches"),
        (Forget(metric="k"), None, "metric k: nothing in the table matches"),
        (Forget(metric="n", tags={"a": "b"}), None, "metric n: nothing in the table matches"),
    ],
)
def test_a_name_without_a_match_is_an_error(forget: Forget, instance: str | None, error: str) -> None:
    """So a misspelt name is noticed."""
    with pytest.raises(NoMatchError, match=error):
        planned(table(1), forget, instance)


def test_without_a_table_there_is_nothing_to_forget() -> None:
    """The message has the remedy."""
    with pytest.raises(TallystreamError, match="start the aggregator first"):
        planned(Direct(), Forget(metric="n"))


def test_it_waits_until_the_sums_of_every_shard_include_the_records() -> None:
    """With several shards the combiner says so. It has no positions until each shard has some."""
    ends = {Place("metrics", 0): 5, Place("metrics", 1): 3}
    behind, there = {"metrics": {"0": 5, "1": 2}}, {"metrics": {"0": 6, "1": 3}}

    def row(of: int, **positions: Any) -> PositionsRow:
        fields: dict[str, Any] = {"shard": 0, "of": of, "claim": (1, 0), "step": 1, "positions": {}, "topics": {}}
        return PositionsRow(**fields | positions)

    assert not has_reached(None, ends)
    assert [has_reached(row(1, positions=one), ends) for one in ({}, behind, there)] == [False, False, True]
    of_shards: list[dict[str, Any]] = [{}, {"0": there}, {"0": there, "1": behind}, {"0": there, "1": there}]
    assert [has_reached(row(2, shards=one), ends) for one in of_shards] == [False, False, False, True]
