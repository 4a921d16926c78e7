"""What Spark's progress says about a batch, and what of it is not counted yet."""

from __future__ import annotations

import dataclasses
import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tallystream.registry import MetricRegistry
from tallystream.spark.batches import Batch, CountedOffsets, Uncounted, read_progress, starts_of
from tallystream.spark.recorder import QueryMetrics
from tallystream.testing import ManualClock


def source(start: Any, end: Any, rows: int, description: str = "KafkaV2[Subscribe[flights]]") -> dict[str, Any]:
    return {"description": description, "startOffset": start, "endOffset": end, "numInputRows": rows}


def progress(*sources: dict[str, Any], **values: Any) -> str:
    """Return a progress as Spark writes it, with those fields that are read."""
    return json.dumps(
        {
            "id": "1f6a7e0e-0000",
            "runId": "run-1",
            "name": "scores",
            "timestamp": "2026-11-25T08:00:00.000Z",
            "batchId": 4,
            "batchDuration": 1500,
            "stateOperators": [],
            "sources": list(sources),
            **values,
        }
    )


def test_a_progress_with_a_kafka_source_and_another_one() -> None:
    """Rows are of all sources, offsets only of Kafka's; state is the sum over the operators."""
    operators = [{"numRowsTotal": 5, "memoryUsedBytes": 1000}, {"numRowsTotal": 2, "memoryUsedBytes": 24}]
    text = progress(
        source({"flights": {"0": 10, "1": 3}}, {"flights": {"0": 14, "1": 3}}, 4),
        source({"version": 1}, {"version": 2}, 7, "DeltaSource[file:/x]"),
        stateOperators=operators,
        eventTime={"watermark": "2026-11-25T07:59:50.500Z"},
    )
    assert read_progress(text) == Batch(
        query="scores",
        query_id="1f6a7e0e-0000",
        run_id="run-1",
        number=4,
        rows=11,
        seconds=1.5,
        state_rows=7,
        state_bytes=1024,
        watermark=1795593590.5,
        kafka_rows=4,
        starts={("flights", 0): 10, ("flights", 1): 3},
        ends={("flights", 0): 14, ("flights", 1): 3},
    )


def test_what_a_progress_may_lack() -> None:
    """A query without a name has its ID; the first watermark, which is 1970, is none; offsets may be JSON in JSON."""
    text = source('{"flights":{"0":1}}', '{"flights":{"0":2}}', 1)
    batch = read_progress(progress(text, name=None, eventTime={"watermark": "1970-01-01T00:00:00.000Z"}))
    assert (batch.query, batch.watermark) == ("1f6a7e0e-0000", None)
    assert (batch.starts, batch.ends) == ({("flights", 0): 1}, {("flights", 0): 2})


def test_a_topic_that_is_read_twice() -> None:
    """If two sources read a partition, the one that is behind counts: the query has not processed more with both."""
    ahead, behind = ({"flights": {"0": 10}}, {"flights": {"0": 20}}), ({"flights": {"0": 5}}, {"flights": {"0": 15}})
    batch = read_progress(progress(source(*ahead, 10), source(*behind, 10)))
    assert (batch.starts, batch.ends) == ({("flights", 0): 5}, {("flights", 0): 15})


@pytest.mark.parametrize(
    ("beginnings", "rows", "starts"),
    [
        ({0: 0, 1: 0}, 0, {0: 10, 1: 20}),  # startingOffsets=latest
        ({0: 4, 1: 5}, 21, {0: 4, 1: 5}),  # startingOffsets=earliest
        ({0: 10, 1: 5}, 6, {0: 10, 1: 14}),  # only one partition has records
        ({0: 4, 1: 5}, 42, {0: 4, 1: 5}),  # each row is read twice, as by two actions in foreachBatch
        ({0: 8, 1: 19}, 7, {0: 8, 1: 19}),  # records have been deleted since
    ],
)
def test_where_the_first_batch_started(beginnings: dict[int, int], rows: int, starts: dict[int, int]) -> None:
    """Spark does not report where the first batch of a query started; its rows and the first offsets tell it."""
    first = dataclasses.replace(batch(0, None, {0: 10, 1: 20}), kafka_rows=rows)
    found = starts_of(first, {("a", at): low for at, low in beginnings.items()})
    assert found == {("a", at): start for at, start in starts.items()}


def batch(number: int, starts: dict[int, int] | None, ends: dict[int, int], *, run: str = "run-1") -> Batch:
    rows = sum(ends.values()) - sum((starts or {}).values())
    return Batch(
        query="scores",
        query_id="id",
        run_id=run,
        number=number,
        rows=rows,
        seconds=0.5,
        state_rows=0,
        state_bytes=0,
        watermark=None,
        kafka_rows=rows,
        starts=None if starts is None else {("a", at): start for at, start in starts.items()},
        ends={("a", at): end for at, end in ends.items()},
    )


def test_a_partition_that_is_added_and_a_topic_that_is_made_again() -> None:
    """An added partition is read from its beginning. Offsets that go back to lower ones cover nothing."""
    counted = CountedOffsets()
    added = counted.add(batch(1, {0: 5}, {0: 6, 1: 4}), {("a", 1): 0})
    assert added is not None
    assert added.spans == {("a", 0): (5, 6), ("a", 1): (0, 4)}
    again = counted.add(batch(2, {0: 6, 1: 4}, {0: 2, 1: 5}))
    assert again is not None
    assert again.spans == {("a", 1): (4, 5)}


@pytest.mark.parametrize(("rows", "first"), [(12, 5000), (24, 5000), (2, 5010), (12, None)])
def test_a_topic_that_a_pattern_finds_starts_at_its_first_offset(rows: int, first: int | None) -> None:
    """Records that retention deleted before the query found the topic are not counted, however often a row is read.

    If the broker is not asked, the rows tell how many there were.
    """
    counted = CountedOffsets()
    counted.add(read_progress(progress(source(None, {"f": {"0": 10}}, 10), batchId=0)), {("f", 0): 0})
    found = source({"f": {"0": 10}}, {"f": {"0": 12}, "g": {"0": 5010}}, rows)
    added = counted.add(read_progress(progress(found, batchId=1)), {} if first is None else {("g", 0): first})
    assert added is not None
    assert added.spans == {("f", 0): (10, 12), ("g", 0): (first or 5000, 5010)}


@settings(max_examples=300)
@given(st.randoms(use_true_random=False), st.integers(1, 4), st.integers(1, 40))
def test_counts_are_exact_however_often_the_driver_is_killed(
    chance: random.Random, partitions: int, steps: int
) -> None:
    """Random batches, kills, lost reports and repeated ones: the positions cover each offset once, whatever is lost.

    The counters are those of the committed batches, unless the driver was killed between the arrival of a report and
    the commit. The model runs what Spark does, and the recorder's order: count, report, commit.
    """
    ends = [chance.randrange(50) for _ in range(partitions)]
    first = list(ends)
    group: tuple[dict[tuple[str, int], int], int | None] = ({}, None)
    reported, batches, twice_records, twice_batches = 0, 0, 0, 0
    lowest: dict[int, int] = {}
    highest: dict[int, int] = {}

    counted, run = CountedOffsets(), 0
    registry = MetricRegistry("app", clock=ManualClock())
    metrics = QueryMetrics(registry, "scores")

    def arrive() -> tuple[int, int]:
        for at in range(partitions):
            position = registry.position("a", at, {"query": "scores"}, name="spark.records.position")
            if position.start is not None and position.position is not None:
                lowest[at] = min(lowest.get(at, position.start), position.start)
                highest[at] = max(highest.get(at, 0), position.position)
        tags = {"query": "scores"}
        return registry.counter("spark.records", tags).count, registry.counter("spark.batches", tags).count

    life_records, life_batches, known = 0, 0, False
    for number in range(steps):
        starts = dict(enumerate(ends))
        ends = [end + chance.choice([0, 0, 1, chance.randrange(30)]) for end in ends]  # Spark commits the batch
        point = chance.choice(["no kill", "no kill", "unreported", "uncounted", "uncommitted", "after the commit"])
        if number == 0 or not known:
            point = "no kill"  # what is before the first report is not known to anybody
        if point != "unreported":
            done = batch(number, starts, dict(enumerate(ends)), run=str(run))
            uncounted = counted.add(done)
            assert uncounted is not None
            assert counted.add(done) is None
            metrics.add(done, uncounted)
            if point != "uncounted":
                before = (life_records, life_batches)
                life_records, life_batches = arrive()
                if point == "uncommitted":
                    twice_records += life_records - before[0]
                    twice_batches += life_batches - before[1]
                else:
                    group, known = (dict(counted.ends), counted.batch), True
        if point != "no kill":
            reported, batches = reported + life_records, batches + life_batches
            counted, run, life_records, life_batches = CountedOffsets(*group), run + 1, 0, 0
            registry = MetricRegistry("app", clock=ManualClock())
            metrics = QueryMetrics(registry, "scores")
    done = batch(steps, dict(enumerate(ends)), dict(enumerate(ends)), run=str(run))
    uncounted = counted.add(done)
    assert uncounted is not None
    metrics.add(done, uncounted)
    life_records, life_batches = arrive()
    assert lowest == dict(enumerate(first))
    assert highest == dict(enumerate(ends))
    assert reported + life_records - twice_records == sum(ends) - sum(first)
    assert batches + life_batches - twice_batches == steps + 1


def test_the_metrics_of_a_batch() -> None:
    """Each metric has the tag `query`."""
    registry = MetricRegistry("app", clock=ManualClock())
    metrics = QueryMetrics(registry, "scores")
    done = dataclasses.replace(batch(4, {0: 1}, {0: 4}), state_rows=5, state_bytes=1000, watermark=1795593600.0)
    metrics.add(done, Uncounted(1, {("a", 0): (1, 4)}))
    metrics.fail()
    found = registry.snapshot()
    assert {metric.tags["query"] for metric in found} == {"scores"}
    assert {metric.name: getattr(metric, "count", getattr(metric, "value", None)) for metric in found} == {
        "spark.rows": 3,
        "spark.batches": 1,
        "spark.batch.duration": 1,
        "spark.failures": 1,
        "spark.state.rows": 5,
        "spark.state.bytes": 1000,
        "spark.watermark": 1795593600,
        "spark.records": 3,
        "spark.records.position": None,
    }
