"""One stage: a fleet that reports, as reporters do, and what the aggregator takes for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.aggregator.backlog import wait_for_sums, watch_on
from benchmarks.aggregator.growth import SETTLE_S, mean_ms, scrape
from benchmarks.aggregator.load import Fleet, Snapshots, Updates
from benchmarks.aggregator.sides import Ours, Running
from benchmarks.aggregator.topic import admin, producer_of
from benchmarks.aggregator.usage import Meter
from benchmarks.aggregator.watch import Watcher
from tallystream.aggregator.topics import Topics, create_topics
from tallystream.compose.servers._process import free_port

if TYPE_CHECKING:
    from pathlib import Path

METRICS, EVERY_S = 100, 10.0
PATIENCE_S = 900.0
SLICE_S = 0.1
"""A tenth of a second's reports are sent together."""


class Stage(NamedTuple):
    """So many instances, and so many shards of the table."""

    instances: int
    shards: int


class Found(NamedTuple):
    """What a stage took. `cores` and `batch_ms` are means while it reported, `restart_s` is until the first new sum."""

    stage: Stage
    rows: int
    records_per_s: float
    record_bytes: float
    loaded_s: float
    cores: float
    others_cores: float
    batch_ms: float
    batches: int
    drain_s: float
    peak_mb: float
    state_mb: float
    checkpoint_mb: float
    restart_s: float
    exact: bool


class _Reports:
    """Publishes the snapshots of a fleet, an instance after the other, round after round."""

    def __init__(self, bootstrap_servers: str, topic: str, fleet: Fleet) -> None:
        self.updates, self.bytes, self.sent = Updates(fleet), 0, 0
        self._fleet, self._topic = fleet, topic
        self._producer = producer_of(bootstrap_servers, {"linger.ms": 5})
        self._snapshots = Snapshots(fleet, int(time.time() * 1000))

    def publish(self, instances: int) -> None:
        """Publish the next instances' snapshots; they are on their way when it returns."""
        for key, value in self._snapshots.render(self.updates.take(instances * self._fleet.metrics)):
            self._producer.produce(self._topic, value, key, 0)
            self.bytes += len(value)
        self.sent += instances
        self._producer.poll(0)

    def paced(self, seconds: float) -> None:
        """Publish for some seconds, every instance once in `EVERY_S`."""
        began, done, rate = time.monotonic(), 0, self._fleet.instances / EVERY_S
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * rate) - done
            if due > 0:
                self.publish(due)
                done += due
            time.sleep(SLICE_S)
        self.flush()

    def flush(self) -> None:
        """Return when the broker has everything."""
        self._producer.flush(PATIENCE_S)


def measure(bootstrap_servers: str, stage: Stage, folder: Path, *, seconds: float) -> Found:
    """Measure one stage: `seconds` of reports after as many that are not measured, then a restart.

    Raises:
        SideError: the aggregator ended, or did not come to the right sums.
    """
    fleet, port = Fleet(instances=stage.instances, metrics=METRICS), free_port()
    topics = Topics(f"s{time.time_ns():x}-")
    side = Ours(options=("--shards", str(stage.shards), "--http-port", str(port)))
    create_topics(admin(bootstrap_servers), topics, shards=stage.shards)
    reports = _Reports(bootstrap_servers, topics.metrics, fleet)
    for first in range(0, stage.instances, 1000):
        reports.publish(min(1000, stage.instances - first))
    reports.flush()
    with Watcher(bootstrap_servers, topics.agg, fleet.names) as watcher:
        with Running(side, bootstrap_servers, topics.prefix, folder) as running, Meter(running.pid) as meter:
            wait_for_sums(watcher, running, reports.updates.sums, PATIENCE_S)
            loaded_s = running.passed()
            reports.paced(seconds)
            wait_for_sums(watcher, running, reports.updates.sums, running.passed() + PATIENCE_S)
            time.sleep(SETTLE_S)
            sent, size, before, cpu_s, others_s = (
                reports.sent,
                reports.bytes,
                scrape(port),
                meter.cpu_s(),
                meter.others_s(),
            )
            began = time.monotonic()
            reports.paced(seconds)
            took = time.monotonic() - began
            wait_for_sums(watcher, running, reports.updates.sums, running.passed() + PATIENCE_S)
            drain_s = time.monotonic() - began - took
            time.sleep(SETTLE_S)  # until the last batch is in the figures, too
            after, sent, size = scrape(port), reports.sent - sent, reports.bytes - size
            whole = time.monotonic() - began
            cpu_s, others_s = meter.cpu_s() - cpu_s, meter.others_s() - others_s
        stored = sum(path.stat().st_size for path in (folder / "checkpoint").rglob("*") if path.is_file())
        reports.publish(1)
        reports.flush()
        with Running(side, bootstrap_servers, topics.prefix, folder) as running:
            sums = watcher.sums.copy()
            while (watcher.sums == sums).all():
                if watcher.poll(0.1) is None:
                    running.require_alive()
            restart_s = running.passed()
            exact = watch_on(watcher, reports.updates.sums, SETTLE_S)
    duration = "tallystream_batch_duration_seconds"
    batches = after[duration, "triggerExecution", "count"] - before[duration, "triggerExecution", "count"]
    return Found(
        stage=stage,
        rows=fleet.rows,
        records_per_s=sent / took,
        record_bytes=size / sent,
        loaded_s=loaded_s,
        cores=cpu_s / whole,
        others_cores=others_s / whole,
        batch_ms=mean_ms(before, after, "triggerExecution"),
        batches=int(batches),
        drain_s=drain_s,
        peak_mb=meter.peak_rss / 1e6,
        state_mb=sum(value for (family, _, _), value in after.items() if family == "tallystream_table_state_bytes")
        / 1e6,
        checkpoint_mb=stored / 1e6,
        restart_s=restart_s,
        exact=exact,
    )
