"""Growth: what a batch costs, what is stored, and how long a restart takes, as the table's rows become more."""

from __future__ import annotations

import math
import re
import time
import urllib.request
from typing import TYPE_CHECKING, Any

from benchmarks.aggregator.backlog import fill, wait_for_sums, watch_on
from benchmarks.aggregator.load import Fleet, Updates, singles
from benchmarks.aggregator.sides import Ours, Running
from benchmarks.aggregator.topic import admin, preload, send_live
from benchmarks.aggregator.usage import Meter
from benchmarks.aggregator.watch import Watcher
from tallystream.aggregator.topics import Topics, create_topics
from tallystream.compose.servers._process import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

METRICS = 50
SETTLE_S = 1.0
PATIENCE_S = 900.0
_LINE = re.compile(r"^(tallystream_[a-z_]+)(?:\{([^}]*)\})? ([0-9.eE+-]+)$", re.MULTILINE)
_PHASE = re.compile(r'phase="(\w+)"')
_DURATION = "tallystream_batch_duration_seconds"


def growth(
    bootstrap_servers: str, side: Ours, folder: Path, *, rows: int, rate: float, warmup_s: float, seconds: float
) -> dict[str, Any]:
    """Measure batches at one `rate` of updates on a table that has `rows` rows before, then a restart of it.

    Every row is published once. The live updates go round all instances, the measured ones after those of `warmup_s`.
    A batch's time is Spark's own (triggerExecution), from the command's `/metrics`.
    """
    fleet = Fleet(instances=max(1, rows // METRICS), metrics=METRICS)
    topics, updates, port = Topics(f"g{time.time_ns():x}-"), Updates(fleet), free_port()
    served = side.with_latency("low").with_options("--http-port", str(port))
    create_topics(admin(bootstrap_servers), topics)
    fill(bootstrap_servers, topics, updates, fleet.rows, "singles")
    with Watcher(bootstrap_servers, side.output(topics.prefix), fleet.names) as watcher:
        with Running(served, bootstrap_servers, topics.prefix, folder) as running, Meter(running.pid) as meter:
            wait_for_sums(watcher, running, updates.sums, PATIENCE_S)
            loaded_s = running.passed()

            def publish(length: float) -> None:
                send_live(bootstrap_servers, topics.metrics, fleet, updates.take(int(rate * length)), rate=rate)
                # All of the sums are back: no batch of this stretch is still to come.
                wait_for_sums(watcher, running, updates.sums, running.passed() + PATIENCE_S)
                time.sleep(SETTLE_S)

            publish(warmup_s)
            before, cpu_s = scrape(port), meter.cpu_s()
            publish(seconds)
            after, cpu_s = scrape(port), meter.cpu_s() - cpu_s
            stop_s = running.stop()
        stored = sum(path.stat().st_size for path in (folder / "checkpoint").rglob("*") if path.is_file())
        again = updates.take(METRICS)  # one instance's turn
        preload(bootstrap_servers, topics.metrics, singles(fleet, again, int(time.time() * 1000)))
        with Running(served, bootstrap_servers, topics.prefix, folder) as running:
            restart = _restart(running, watcher, updates)
    batches = after[_DURATION, "triggerExecution", "count"] - before[_DURATION, "triggerExecution", "count"]
    return {
        "rows": int(after["tallystream_table_rows", "", ""]),
        "rate": rate,
        "seconds": seconds,
        "loaded_s": loaded_s,
        "batches": int(batches),
        "batch_ms": mean_ms(before, after, "triggerExecution"),
        "phases_ms": {phase: mean_ms(before, after, phase) for phase in phases(after)},
        "cpu_ms_per_batch": cpu_s / batches * 1000,
        "state_mb": after.get(("tallystream_table_state_bytes", "", ""), math.nan) / 1e6,
        "state_memory_mb": after.get(("tallystream_state_memory_bytes", "", ""), math.nan) / 1e6,
        "checkpoint_mb": stored / 1e6,
        "peak_rss_mb": meter.peak_rss / 1e6,
        "stop_s": stop_s,
        **restart,
    }


def _restart(running: Running, watcher: Watcher, updates: Updates) -> dict[str, Any]:
    """Wait for the first new sum, then for all of them."""
    before = watcher.sums.copy()
    while (watcher.sums == before).all():
        if watcher.poll(0.1) is None:
            running.require_alive()
    restart_s = running.passed()
    wait_for_sums(watcher, running, updates.sums, PATIENCE_S)
    return {"restart_s": restart_s, "exact": watch_on(watcher, updates.sums, SETTLE_S)}


Scraped = dict[tuple[str, str, str], float]
"""(family, phase, "sum" or "count" of a summary) → value; both texts are empty where there is no such thing."""


def scrape(port: int) -> Scraped:
    """Return what the command serves on `/metrics`."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return parse(answer.read().decode())


def parse(text: str) -> Scraped:
    """Return the samples of an exposition, of those families that are asked for here; quantiles are left out."""
    found: Scraped = {}
    for name, labels, value in _LINE.findall(text):
        if "quantile=" in labels:
            continue
        phase = _PHASE.search(labels)
        family, _, part = name.rpartition("_") if name.startswith(_DURATION) else (name, "", "")
        found[family, phase[1] if phase else "", part] = float(value)
    return found


def phases(scraped: Scraped) -> list[str]:
    """Return the names of the phases of a batch."""
    return sorted({phase for family, phase, part in scraped if family == _DURATION and part == "sum"})


def mean_ms(before: Mapping[tuple[str, str, str], float], after: Scraped, phase: str) -> float:
    """Return the mean time of a phase, in ms, over the batches between two scrapes.

    Raises:
        ValueError: there was no batch.
    """
    total, many = (after[_DURATION, phase, x] - before.get((_DURATION, phase, x), 0.0) for x in ("sum", "count"))
    if many <= 0:
        raise ValueError(f"no batch with the phase {phase} between the two scrapes")
    return total / many * 1000
