"""The internal metrics of the aggregator: what they say of an epoch, and of what is published."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tallystream.testing import InMemoryReporter, ManualClock
from tallystream_aggregator.health.internal_metrics import (
    BY_NAME,
    InternalMetrics,
    Progress,
)
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.epochs import EpochRow
from tallystream_aggregator.table.rows import ShardRow

SHARD = ShardRow(
    clocks={},
    offsets={},
    stale=3,
    records=42,
    dead=2,
    forgotten=5,
    lives=4,
    living=3,
    instances=2,
    rows=12,
    metrics=6,
)
PLACE = Place("t:metrics", 0)
POSITIONS, ENDS = {PLACE: 42}, {PLACE: 50}


def values(internal_metrics: InternalMetrics) -> dict[str, float]:
    """Return the samples by exposed name, and labels beside the command."""
    found = {}
    for family in internal_metrics.families():
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name != "command"}
            found[sample.name + "".join(f" {value}" for value in labels.values())] = sample.value
    return found


@pytest.fixture
def internal_metrics() -> InternalMetrics:
    """The internal metrics of an aggregator."""
    return InternalMetrics("aggregate", ManualClock())


def test_what_is_published_updates_the_internal_metrics(internal_metrics: InternalMetrics) -> None:
    """These are the positions, the ends, the records of this process, and the values of all shards, added up.

    Shards share metrics, so of these only a lower bound is known.
    """
    shards = [SHARD, replace(SHARD, shard=1, records=8, metrics=9)]
    Progress(internal_metrics).watched(POSITIONS, ENDS, shards, records=12, generation=7)
    found = values(internal_metrics)
    wanted = {
        "tallystream_generation": 7,
        "tallystream_input_records_total": 12,
        "tallystream_offset 0 t:metrics": 42,
        "tallystream_end_offset 0 t:metrics": 50,
        "tallystream_table_records_total": 50,
        "tallystream_table_stale_total": 6,
        "tallystream_table_dead_letters_total": 4,
        "tallystream_table_forgotten_total": 10,
        "tallystream_table_lives": 8,
        "tallystream_table_living": 6,
        "tallystream_table_instances": 4,
        "tallystream_table_rows": 24,
        "tallystream_table_metrics": 9,
    }
    assert {name: found.get(name) for name in wanted} == wanted


def test_an_epoch_updates_the_internal_metrics(internal_metrics: InternalMetrics) -> None:
    """Its steps and restarts are added up. Its time is divided into work and waiting."""
    progress = Progress(internal_metrics)
    for _ in range(2):
        progress.epoch([EpochRow(0, steps=100, restarts=1, seconds=60.0, waited_s=57.0, state_bytes=2345)])
    found = values(internal_metrics)
    wanted = {
        "tallystream_steps_total": 200,
        "tallystream_restarts_total": 2,
        "tallystream_epoch_duration_seconds_sum work": 6.0,
        "tallystream_epoch_duration_seconds_sum wait": 114.0,
        "tallystream_epoch_duration_seconds_count wait": 2,
        "tallystream_table_state_bytes": 2345,
    }
    assert {name: found.get(name) for name in wanted} == wanted
    phases = {name.split()[1] for name in found if name.startswith("tallystream_epoch_duration_seconds_sum")}
    assert phases == {"work", "wait"}  # the loops go on while Spark ends an epoch and begins the next


def test_the_age_of_what_is_published_grows_only_while_records_wait() -> None:
    """It is 0 at the ends of the partitions, and after each step."""
    clock = ManualClock()
    internal_metrics = InternalMetrics("aggregate", clock)
    progress = Progress(internal_metrics, clock)
    ages = []
    for positions, ends in (
        (POSITIONS, POSITIONS),
        (POSITIONS, ENDS),
        (POSITIONS, ENDS),
        (ENDS, {PLACE: 60}),
    ):
        progress.watched(positions, ends, [], records=0, generation=1)
        ages.append(values(internal_metrics)["tallystream_published_age_seconds"])
        clock.advance(10)
    assert ages == [0, 10, 20, 0]


def test_the_reporter_has_the_same_metrics(internal_metrics: InternalMetrics) -> None:
    """Totals of the table are gauges, so that no sum over lives counts them twice."""
    Progress(internal_metrics).watched(POSITIONS, ENDS, [SHARD], records=1, generation=7)
    reporter = InMemoryReporter(internal_metrics.registry)
    assert reporter.report_now()
    kinds = {metric.name: metric.type for metric in reporter.reports[-1]}
    assert kinds.keys() <= BY_NAME.keys()
    assert (kinds["tallystream.input.records"], kinds["tallystream.table.records"]) == ("counter", "gauge")
    assert {metric.tags["command"] for metric in reporter.reports[-1]} == {"aggregate"}
