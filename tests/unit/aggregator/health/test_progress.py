"""The internal metrics after a batch, from progress events as Spark 4.2 writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tallystream.testing import InMemoryReporter, ManualClock
from tallystream_aggregator.health.internal_metrics import BY_NAME, INTERNAL_METRICS, InternalMetrics, Progress

SHARD = {
    "v": 1,
    "shard": 0,
    "clocks": {"t:metrics:0": 1_700_000_001_000},
    "offsets": {"t:metrics:0": 41},
    "stale": 3,
    "records": 42,
    "dead": 2,
    "forgotten": 5,
    "lives": 4,
    "living": 3,
    "instances": 2,
    "rows": 12,
    "metrics": 6,
    "state_bytes": 2345,
    "epoch": 7,
    "batch": 9,
}


def event(batch: int = 9, *shards: dict[str, Any], **other: Any) -> dict[str, Any]:
    """Return a progress event."""
    return {
        "id": "0f75a09a-b8e0-4355-b73c-56b1fce27ac7",
        "name": "aggregate",
        "timestamp": "2023-11-14T22:13:20.500Z",
        "batchId": batch,
        "numInputRows": 42,
        "processedRowsPerSecond": 84.0,
        "durationMs": {"addBatch": 400, "walCommit": 20, "triggerExecution": 500},
        "stateOperators": [{"operatorName": "x", "numRowsTotal": 1, "memoryUsedBytes": 8192}],
        "sources": [
            {"startOffset": None, "endOffset": {"t:metrics": {"0": 42}}, "latestOffset": {"t:metrics": {"0": 50}}}
        ],
        "observedMetrics": {"table": {"shards": [json.dumps(one) for one in shards]}},
        **other,
    }


def values(internal_metrics: InternalMetrics) -> dict[str, float]:
    """Return the samples by exposed name, and labels beside the command."""
    found = {}
    for family in internal_metrics.families():
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name != "command"}
            found[family.name + sample.suffix + "".join(f" {value}" for value in labels.values())] = sample.value
    return found


@pytest.fixture
def internal_metrics() -> InternalMetrics:
    """The internal metrics of an aggregator."""
    return InternalMetrics("aggregate", ManualClock())


def test_a_batch_updates_the_internal_metrics(internal_metrics: InternalMetrics) -> None:
    """These are its number, time, phases, records, offsets and state, and the values of the shard's record."""
    assert Progress(internal_metrics).observe(event(9, SHARD)) == 9
    found = values(internal_metrics)
    wanted = {
        "tallystream_epoch": 7,
        "tallystream_batches_total": 1,
        "tallystream_batch_number": 9,
        "tallystream_batch_time_seconds": 1_700_000_000.5,
        "tallystream_batch_records_per_second": 84.0,
        "tallystream_batch_duration_seconds_sum addBatch": 0.4,
        "tallystream_batch_duration_seconds_count triggerExecution": 1,
        "tallystream_input_records_total": 42,
        "tallystream_offset 0 t:metrics": 42,
        "tallystream_end_offset 0 t:metrics": 50,
        "tallystream_state_rows": 1,
        "tallystream_state_memory_bytes": 8192,
        "tallystream_table_records_total": 42,
        "tallystream_table_stale_total": 3,
        "tallystream_table_dead_letters_total": 2,
        "tallystream_table_forgotten_total": 5,
        "tallystream_table_lives": 4,
        "tallystream_table_living": 3,
        "tallystream_table_instances": 2,
        "tallystream_table_rows": 12,
        "tallystream_table_metrics": 6,
        "tallystream_table_state_bytes": 2345,
        "tallystream_table_clock_seconds 0 t:metrics": 1_700_000_001.0,
    }
    assert {name: found.get(name) for name in wanted} == wanted


def test_a_trigger_without_records_is_not_a_batch(internal_metrics: InternalMetrics) -> None:
    """It changes no metric."""
    before = values(internal_metrics)
    assert Progress(internal_metrics).observe(event(durationMs={"latestOffset": 1, "triggerExecution": 2})) is None
    assert values(internal_metrics) == before


def test_a_batch_without_a_shard_keeps_the_values_of_the_table(internal_metrics: InternalMetrics) -> None:
    """The counters of this process increase."""
    progress = Progress(internal_metrics)
    progress.observe(event(9, SHARD))
    progress.observe(event(10))
    found = values(internal_metrics)
    assert (found["tallystream_table_records_total"], found["tallystream_batches_total"]) == (42, 2)


def test_the_newest_values_of_all_shards_are_added_up(internal_metrics: InternalMetrics) -> None:
    """One shard has two records."""
    Progress(internal_metrics).observe(
        event(9, SHARD, {**SHARD, "records": 50}, {**SHARD, "shard": 1, "records": 8, "epoch": 8})
    )
    found = values(internal_metrics)
    assert (found["tallystream_table_records_total"], found["tallystream_epoch"]) == (58, 8)


def test_a_query_without_a_table_has_no_metrics_of_it(internal_metrics: InternalMetrics) -> None:
    """The shipper has neither a state nor shards."""
    Progress(internal_metrics).observe(event(0, stateOperators=[], observedMetrics={}))
    assert not [name for name in values(internal_metrics) if "table" in name or "state" in name]


def test_the_reporter_has_the_same_metrics(internal_metrics: InternalMetrics) -> None:
    """Totals of the table are gauges, so that no sum over lives counts them twice."""
    Progress(internal_metrics).observe(event(9, SHARD))
    reporter = InMemoryReporter(internal_metrics.registry)
    assert reporter.report_now()
    kinds = {metric.name: metric.type for metric in reporter.reports[-1]}
    assert kinds.keys() <= BY_NAME.keys()
    assert (kinds["tallystream.batches"], kinds["tallystream.table.records"]) == ("counter", "gauge")
    assert {metric.tags["command"] for metric in reporter.reports[-1]} == {"aggregate"}


def test_a_metric_that_is_not_in_the_list_is_an_error(internal_metrics: InternalMetrics) -> None:
    """The documentation shows the list."""
    with pytest.raises(KeyError):
        internal_metrics.set("tallystream.secret", 1)


def test_every_metric_has_its_own_name() -> None:
    """This also holds for the names in Prometheus."""
    assert len({figure.exposed for figure in INTERNAL_METRICS}) == len(BY_NAME) == len(INTERNAL_METRICS)


def test_compacted_records_of_a_backlog_are_counted() -> None:
    """An observed metric of Spark has their number. It is null for a batch without records."""
    internal_metrics = InternalMetrics("aggregate")
    progress = Progress(internal_metrics)
    for batch, records in ((1, 5000), (2, None)):
        progress.observe(event(batch, observedMetrics={"read": {"records": records}}))
    assert values(internal_metrics)["tallystream_input_records_total"] == 5000
