"""The cost of one batch: on tables of different sizes, and in a backlog that is read in full batches of few records."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.aggregator.backlog import fill, stays_exact, wait_for_sums
from benchmarks.aggregator.live import MAX_START_S
from benchmarks.aggregator.load import Fleet, Updates
from benchmarks.aggregator.scraping import batches as batches_between
from benchmarks.aggregator.scraping import finished_batches, scrape
from benchmarks.aggregator.sides import Ours, Running
from benchmarks.aggregator.topic import admin, send_live
from benchmarks.aggregator.usage import Meter
from benchmarks.aggregator.watch import Watcher
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_cli.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

METRICS = 50
"""Metrics of each instance in `growth`."""
SETTLE_S = 1.0
MAX_WAIT_S = 900.0
SPARE_BATCHES = 20
"""Batches in a backlog beyond those that are measured, so that every measured batch is full."""


def growth(
    bootstrap_servers: str, side: Ours, folder: Path, *, rows: int, rate: float, warmup_s: float, seconds: float
) -> dict[str, Any]:
    """Measure batches at `rate` updates a second on a table that already has `rows` rows.

    Each row is published once. Then live updates go to all instances in turn: those of `warmup_s` seconds are not
    measured, those of the following `seconds` are. The time of a batch is Spark's own (triggerExecution), from
    `/metrics` of the command.
    """
    fleet = Fleet(instances=max(1, rows // METRICS), metrics=METRICS)
    topics, updates, port = Topics(f"g{time.time_ns():x}-"), Updates(fleet), free_port()
    measured_side = side.with_latency("low").with_options("--http-port", str(port))
    create_topics(admin(bootstrap_servers), topics)
    fill(bootstrap_servers, topics, updates, fleet.rows, "singles")
    with (
        Watcher(bootstrap_servers, side.output(topics.prefix), fleet.names) as watcher,
        Running(measured_side, bootstrap_servers, topics.prefix, folder) as running,
        Meter(running.pid) as meter,
    ):
        wait_for_sums(watcher, running, updates.sums, MAX_WAIT_S)

        def publish(length: float) -> None:
            send_live(bootstrap_servers, topics.metrics, fleet, updates.take(int(rate * length)), rate=rate)
            # Wait for all sums, so that no batch with these updates runs later.
            wait_for_sums(watcher, running, updates.sums, running.passed() + MAX_WAIT_S)
            time.sleep(SETTLE_S)

        publish(warmup_s)
        before, cpu_s = scrape(port), meter.cpu_s()
        publish(seconds)
        after, cpu_s = scrape(port), meter.cpu_s() - cpu_s
        exact = stays_exact(watcher, updates.sums, SETTLE_S)
    measured = batches_between(before, after)
    return {
        "rows": int(after["tallystream_table_rows", "", ""]),
        "rate": rate,
        "seconds": seconds,
        "batches": measured.number,
        "batch_ms": measured.mean_ms,
        "cpu_ms_per_batch": cpu_s / measured.number * 1000,
        "peak_rss_mb": meter.peak_rss / 1e6,
        "exact": exact,
    }


@contextmanager
def running_on_backlog(
    bootstrap_servers: str, side: Ours, folder: Path, *, records: int, batches: int
) -> Iterator[tuple[Running, int, Updates, str]]:
    """Start our side in live mode on a backlog of `batches` batches of `records` records each.

    Yield, when it is ready: the process, the port of its `/metrics`, the updates of the backlog and the topics' prefix.
    """
    topics, port, updates = Topics(f"f{time.time_ns():x}-"), free_port(), Updates(Fleet())
    create_topics(admin(bootstrap_servers), topics)
    fill(bootstrap_servers, topics, updates, records * batches, "singles")
    options = ("--mode", "live", "--max-records", str(records), "--http-port", str(port))
    measured_side = side.with_latency("low").with_options(*options)
    with Running(measured_side, bootstrap_servers, topics.prefix, folder) as running:
        running.wait_ready(MAX_START_S)
        yield running, port, updates, topics.prefix


def wait_for_batches(count: float, port: int, running: Running) -> None:
    """Return when `count` batches have finished."""
    while finished_batches(port) < count:
        running.require_alive()
        time.sleep(0.1)


def full_batches(
    bootstrap_servers: str, side: Ours, folder: Path, *, records: int, warmup: int, batches: int
) -> dict[str, Any]:
    """Measure `batches` batches of `records` records each, after `warmup` others. Then check the sums."""
    backlog = {"records": records, "batches": warmup + batches + SPARE_BATCHES}
    with running_on_backlog(bootstrap_servers, side, folder, **backlog) as (running, port, updates, prefix):
        with Meter(running.pid) as meter:
            wait_for_batches(warmup, port, running)
            before, cpu_s = scrape(port), meter.cpu_s()
            wait_for_batches(finished_batches(port) + batches, port, running)
            after, cpu_s = scrape(port), meter.cpu_s() - cpu_s
        with Watcher(bootstrap_servers, side.output(prefix), updates.fleet.names) as watcher:
            wait_for_sums(watcher, running, updates.sums, running.passed() + MAX_WAIT_S)
            exact = stays_exact(watcher, updates.sums, SETTLE_S)
    measured = batches_between(before, after)
    return {
        "records": records,
        "batches": measured.number,
        "batch_ms": measured.mean_ms,
        "cpu_ms_per_batch": cpu_s / measured.number * 1000,
        "peak_rss_mb": meter.peak_rss / 1e6,
        "exact": exact,
    }
