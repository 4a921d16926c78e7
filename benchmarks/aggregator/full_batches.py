"""Full batches of few records, one after the other, as from a backlog: what one costs."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from benchmarks.aggregator.backlog import fill, wait_for_sums, watch_on
from benchmarks.aggregator.live import READY_S
from benchmarks.aggregator.load import Fleet, Updates
from benchmarks.aggregator.scraping import batches as batches_between
from benchmarks.aggregator.scraping import batches_of, scrape
from benchmarks.aggregator.sides import Ours, Running
from benchmarks.aggregator.topic import admin
from benchmarks.aggregator.usage import Meter
from benchmarks.aggregator.watch import Watcher
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_cli.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE_S = 900.0


@contextmanager
def running(
    bootstrap_servers: str, side: Ours, folder: Path, *, records: int, batches: int
) -> Iterator[tuple[Running, int, Updates, str]]:
    """Start our side before a backlog of `batches` live batches of so many records; yield it when it is ready.

    Beside it: the port of its `/metrics`, the updates of the backlog, and the topics' prefix.
    """
    topics, port, updates = Topics(f"f{time.time_ns():x}-"), free_port(), Updates(Fleet())
    create_topics(admin(bootstrap_servers), topics)
    fill(bootstrap_servers, topics, updates, records * batches, "singles")
    paced = ("--mode", "live", "--max-records", str(records), "--http-port", str(port))
    served = side.with_latency("low").with_options(*paced)
    with Running(served, bootstrap_servers, topics.prefix, folder) as started:
        started.wait_ready(READY_S)
        yield started, port, updates, topics.prefix


def wait_for(batches: float, port: int, started: Running) -> None:
    """Return when so many batches are finished."""
    while batches_of(port) < batches:
        started.require_alive()
        time.sleep(0.1)


def full_batches(
    bootstrap_servers: str, side: Ours, folder: Path, *, records: int, warmup: int, batches: int
) -> dict[str, Any]:
    """Measure so many batches after `warmup` others, then see whether the sums are right."""
    # Some more than are measured, so that every batch is full.
    backlog = {"records": records, "batches": warmup + batches + 20}
    with running(bootstrap_servers, side, folder, **backlog) as (started, port, updates, prefix):
        with Meter(started.pid) as meter:
            wait_for(warmup, port, started)
            before, cpu_s = scrape(port), meter.cpu_s()
            wait_for(batches_of(port) + batches, port, started)
            after, cpu_s = scrape(port), meter.cpu_s() - cpu_s
        with Watcher(bootstrap_servers, side.output(prefix), updates.fleet.names) as watcher:
            wait_for_sums(watcher, started, updates.sums, started.passed() + PATIENCE_S)
            exact = watch_on(watcher, updates.sums, 1.0)
    measured = batches_between(before, after)
    return {
        "records": records,
        "batches": measured.many,
        "batch_ms": measured.mean_ms,
        "cpu_ms_per_batch": cpu_s / measured.many * 1000,
        "peak_rss_mb": meter.peak_rss / 1e6,
        "exact": exact,
    }
