"""Updates at a rate: how long each one takes to reach a sum, and whether the side keeps up."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.aggregator.backlog import SETTLE_S
from benchmarks.aggregator.latency import latencies, percentile
from benchmarks.aggregator.load import Fleet, Updates
from benchmarks.aggregator.scraping import batches_of
from benchmarks.aggregator.sides import Ours, Running, Side
from benchmarks.aggregator.topic import admin, send_live
from benchmarks.aggregator.usage import Meter
from benchmarks.aggregator.watch import Recording, Watcher
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_cli.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

READY_S = 300.0
DRAIN_S = 120.0
KEPT_UP_S = 3.0
"""A side keeps up when its last sums are right within this time of the last update."""


def live(
    bootstrap_servers: str, side: Side, folder: Path, *, rate: float, warmup_s: float, seconds: float, fleet: Fleet
) -> dict[str, Any]:
    """Measure one side at `rate` updates a second for `seconds`, after `warmup_s` at the same rate.

    `cpu_cores` and, for our side, `cpu_ms_per_batch` are means over the `seconds`.
    """
    port = free_port() if isinstance(side, Ours) else None
    if isinstance(side, Ours):
        side = side.with_options("--http-port", str(port))
    topics, updates = Topics(f"l{time.time_ns():x}-"), Updates(fleet)
    create_topics(admin(bootstrap_servers), topics)
    warm, measured = int(rate * warmup_s), int(rate * seconds)
    with (
        Watcher(bootstrap_servers, side.output(topics.prefix), fleet.names) as watcher,
        Running(side, bootstrap_servers, topics.prefix, folder) as running,
    ):
        ready_s = running.wait_ready(READY_S)
        with Meter(running.pid) as meter:
            recording = Recording(watcher)
            send_live(bootstrap_servers, topics.metrics, fleet, updates.take(warm), rate=rate)
            base, taken, batches = updates.sums.copy(), updates.take(measured), batches_of(port)
            began, cpu_s, others_s = time.monotonic(), meter.cpu_s(), meter.others_s()
            sent = send_live(bootstrap_servers, topics.metrics, fleet, taken, rate=rate)
            cpu_s, others_s, took_s = meter.cpu_s() - cpu_s, meter.others_s() - others_s, time.monotonic() - began
            batches = batches_of(port) - batches
            drain_s = _wait(lambda: watcher.matches(updates.sums), running)
            time.sleep(SETTLE_S)
            arrivals = recording.stop()
    found = latencies(taken, base, sent.times, arrivals)
    included = found.seconds[~np.isnan(found.seconds)]
    return {
        "rate": rate,
        "seconds": seconds,
        "warmup_s": warmup_s,
        "ready_s": ready_s,
        **{f"p{percent}_ms": percentile(included, percent) * 1000 for percent in (50, 95, 99, 100)},
        "drain_s": drain_s,
        "keeps_up": drain_s <= KEPT_UP_S and len(included) == measured,
        "not_included": measured - len(included),
        "odd_sums": found.odd,
        "sent_late_ms": sent.worst_lag_s * 1000,
        "cpu_cores": cpu_s / took_s,
        "cpu_ms_per_batch": cpu_s / batches * 1000 if batches else math.nan,
        "peak_rss_mb": meter.peak_rss / 1e6,
        "others_cores": others_s / took_s,
        "sums_received": watcher.received,
        "exact": watcher.matches(updates.sums),
    }


def _wait(done: Callable[[], bool], running: Running) -> float:
    began = time.monotonic()
    while not done() and time.monotonic() - began < DRAIN_S:
        running.require_alive()
        time.sleep(0.01)
    return time.monotonic() - began
