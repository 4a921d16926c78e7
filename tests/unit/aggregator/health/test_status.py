"""The status of a command and its internal metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from tallystream.testing import InMemoryReporter, ManualClock
from tallystream_aggregator.health.health import MAX_SILENCE_S, Status
from tallystream_aggregator.health.internal_metrics import BY_NAME, INTERNAL_METRICS, InternalMetrics, Progress
from tallystream_aggregator.stream.broker import Place
from tallystream_aggregator.stream.epochs import EpochRow
from tallystream_aggregator.table.rows import ShardRow


@pytest.fixture
def clock() -> ManualClock:
    """A clock that only the test advances."""
    return ManualClock()


def test_a_command_that_starts_or_stands_by_is_alive_and_not_ready(clock: ManualClock) -> None:
    """The time does not matter: a restart would not help."""
    status = Status(clock)
    clock.advance(10 * MAX_SILENCE_S)
    assert (status.unhealthy_reason(), status.unready_reason()) == (None, "starting")
    status.stand_by()
    clock.advance(10 * MAX_SILENCE_S)
    assert (status.unhealthy_reason(), status.unready_reason()) == (None, "standing by")


def test_a_command_that_does_not_check_for_records_is_stuck(clock: ManualClock) -> None:
    """The reason has the seconds. The next check makes it alive again."""
    status = Status(clock)
    status.run()
    status.checked()
    clock.advance(MAX_SILENCE_S - 1)
    assert status.unready_reason() is None
    clock.advance(2)
    assert status.unhealthy_reason() == status.unready_reason() == "the last check was 301 s ago"
    status.checked()
    assert status.unhealthy_reason() is None


def test_waiting_for_a_store_is_alive_and_not_ready(clock: ManualClock) -> None:
    """An outage must not restart the shipper, and its points do not arrive."""
    status = Status(clock)
    status.run()
    status.checked()
    status.waiting_for = "the store"
    clock.advance(10 * MAX_SILENCE_S)
    assert (status.unhealthy_reason(), status.unready_reason()) == (None, "waiting for the store")


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
    """The steps and restarts of all shards are added up. The time of the busiest one is work and waiting."""
    progress = Progress(internal_metrics)
    rows = [
        EpochRow(0, steps=40, restarts=1, seconds=60.0, waited_s=58.0, state_bytes=2000),
        EpochRow(1, steps=60, seconds=59.0, waited_s=57.0, state_bytes=345),
    ]
    for _ in range(2):
        progress.epoch(rows)
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


DOC = (Path(__file__).parents[4] / "docs" / "configuration.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in DOC.splitlines()]


def test_the_documentation_lists_every_internal_metric() -> None:
    """Names, descriptions and labels are in the order of the list."""
    found = [row for row in ROWS if row[0].startswith("`tallystream_")]
    wanted = []
    for one in INTERNAL_METRICS:
        by = f" By {' and '.join(f'`{label}`' for label in one.labels)}." if one.labels else ""
        wanted.append([f"`{one.exposed}`", one.help + by])
    assert found == wanted


def test_the_documentation_has_the_limit_of_a_stuck_query() -> None:
    """It is in seconds."""
    assert f"seen of its work for {MAX_SILENCE_S:.0f} s" in DOC
