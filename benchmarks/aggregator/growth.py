"""Growth: what a batch costs as the table's rows become more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks.aggregator.backlog import fill, wait_for_sums, watch_on
from benchmarks.aggregator.load import Fleet, Updates
from benchmarks.aggregator.scraping import batches, scrape
from benchmarks.aggregator.sides import Ours, Running
from benchmarks.aggregator.topic import admin, send_live
from benchmarks.aggregator.usage import Meter
from benchmarks.aggregator.watch import Watcher
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_cli.servers.process import free_port

if TYPE_CHECKING:
    from pathlib import Path

METRICS = 50
SETTLE_S = 1.0
PATIENCE_S = 900.0


def growth(
    bootstrap_servers: str, side: Ours, folder: Path, *, rows: int, rate: float, warmup_s: float, seconds: float
) -> dict[str, Any]:
    """Measure batches at one `rate` of updates on a table that has `rows` rows before.

    Every row is published once. The live updates go round all instances, the measured ones after those of `warmup_s`.
    A batch's time is Spark's own (triggerExecution), from the command's `/metrics`.
    """
    fleet = Fleet(instances=max(1, rows // METRICS), metrics=METRICS)
    topics, updates, port = Topics(f"g{time.time_ns():x}-"), Updates(fleet), free_port()
    served = side.with_latency("low").with_options("--http-port", str(port))
    create_topics(admin(bootstrap_servers), topics)
    fill(bootstrap_servers, topics, updates, fleet.rows, "singles")
    with (
        Watcher(bootstrap_servers, side.output(topics.prefix), fleet.names) as watcher,
        Running(served, bootstrap_servers, topics.prefix, folder) as running,
        Meter(running.pid) as meter,
    ):
        wait_for_sums(watcher, running, updates.sums, PATIENCE_S)

        def publish(length: float) -> None:
            send_live(bootstrap_servers, topics.metrics, fleet, updates.take(int(rate * length)), rate=rate)
            # All of the sums are back: no batch of this stretch is still to come.
            wait_for_sums(watcher, running, updates.sums, running.passed() + PATIENCE_S)
            time.sleep(SETTLE_S)

        publish(warmup_s)
        before, cpu_s = scrape(port), meter.cpu_s()
        publish(seconds)
        after, cpu_s = scrape(port), meter.cpu_s() - cpu_s
        exact = watch_on(watcher, updates.sums, SETTLE_S)
    measured = batches(before, after)
    return {
        "rows": int(after["tallystream_table_rows", "", ""]),
        "rate": rate,
        "seconds": seconds,
        "batches": measured.many,
        "batch_ms": measured.mean_ms,
        "cpu_ms_per_batch": cpu_s / measured.many * 1000,
        "peak_rss_mb": meter.peak_rss / 1e6,
        "exact": exact,
    }
