"""One stage: a fleet publishes as reporters do, and the resources that the aggregator uses are measured."""

from __future__ import annotations

import math
import shutil
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.aggregator.backlog import stays_exact, wait_for_sums
from benchmarks.aggregator.live import latencies, longest_gap, percentile
from benchmarks.aggregator.load import Fleet, Snapshots, Updates, UpdateSlice
from benchmarks.aggregator.sides import Ours, Running, SideError
from benchmarks.aggregator.topic import admin, producer_of
from benchmarks.aggregator.usage import Meter
from benchmarks.aggregator.watch import Recording, Watcher
from tallystream_aggregator.kafka.topics import Topics, create_topics

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

METRICS = 100
PATIENCE_S = 1800.0
SETTLE_S = 1.0
SLICE_S = 0.1
"""A tenth of a second's reports are sent together."""


class _Reports:
    """Publishes the snapshots of a fleet in rounds, one instance after the other."""

    def __init__(self, bootstrap_servers: str, topic: str, fleet: Fleet, every_s: float) -> None:
        self.sent = 0
        self._fleet, self._topic, self._every_s = fleet, topic, every_s
        self._producer = producer_of(bootstrap_servers, {"linger.ms": 5})
        self._updates = Updates(fleet)
        self._snapshots = Snapshots(fleet, int(time.time() * 1000), every_ms=int(every_s * 1000))
        self._published: list[UpdateSlice] = []
        self._times: list[float] = []

    @property
    def sums(self) -> NDArray[np.int64]:
        """The sums of everything published, by metric."""
        return self._updates.sums

    def publish(self, instances: int) -> None:
        """Publish the next instances' snapshots without waiting for their delivery."""
        updates = self._updates.take(instances * self._fleet.metrics)
        self._published.append(updates)
        for key, value in self._snapshots.render(updates):
            self._times.append(time.time())
            self._producer.produce(self._topic, value, key, 0)
        self.sent += instances
        self._producer.poll(0)

    def all_once(self) -> None:
        """Publish a snapshot of every instance."""
        for first in range(0, self._fleet.instances, 1000):
            self.publish(min(1000, self._fleet.instances - first))
            self._producer.flush(PATIENCE_S)

    def forget(self) -> None:
        """Forget the updates that were published so far."""
        self._published.clear()
        self._times.clear()

    def published(self) -> tuple[UpdateSlice, NDArray[np.float64]]:
        """Return the updates since the last `forget`, and when each was sent, in epoch seconds."""
        steps = np.concatenate([one.steps for one in self._published])
        updates = UpdateSlice(self._published[0].first, steps, steps)
        return updates, np.repeat(self._times, self._fleet.metrics)

    def paced(self, seconds: float) -> None:
        """Publish for some seconds, every instance once in `every_s`, and wait for the delivery."""
        began, done, rate = time.monotonic(), 0, self._fleet.instances / self._every_s
        while (passed := time.monotonic() - began) < seconds:
            due = int(passed * rate) - done
            if due > 0:
                self.publish(due)
                done += due
            time.sleep(SLICE_S)
        self._producer.flush(PATIENCE_S)

    def one(self) -> None:
        """Publish one more snapshot and wait for its delivery."""
        self.publish(1)
        self._producer.flush(PATIENCE_S)


def measure(
    bootstrap_servers: str, side: Ours, folder: Path, *, fleet: Fleet, every_s: float, seconds: float, shards: int
) -> dict[str, Any]:
    """Measure `seconds` of reports after as many that are not measured, then a restart, and one without a checkpoint.

    `exact` tells whether the sums were right at the end of each.

    Raises:
        SideError: the aggregator ended, or did not come to the right sums, before the restart.
    """
    topics = Topics(f"s{time.time_ns():x}-")
    served = side.with_options("--shards", str(shards))
    create_topics(admin(bootstrap_servers), topics, shards=shards)
    reports = _Reports(bootstrap_servers, topics.metrics, fleet, every_s)
    reports.all_once()
    with Watcher(bootstrap_servers, topics.agg, fleet.names) as watcher:

        def wait(running: Running) -> None:
            wait_for_sums(watcher, running, reports.sums, running.passed() + PATIENCE_S)

        with Running(served, bootstrap_servers, topics.prefix, folder) as running, Meter(running.pid) as meter:
            wait(running)
            found = {"loaded_s": running.passed(), "rows": fleet.rows, "lives": fleet.instances, "shards": shards}
            reports.paced(seconds)
            wait(running)
            found |= _report(_Place(running, meter, folder, topics), reports, watcher, seconds)
            exact = stays_exact(watcher, reports.sums, SETTLE_S)
        stored = sum(path.stat().st_size for path in (folder / "checkpoint").rglob("*") if path.is_file())
        found |= {"checkpoint_mb": stored / 1e6}

        def begin_again() -> float:
            reports.one()
            with Running(served, bootstrap_servers, topics.prefix, folder) as running:
                first_s = _first_sum(running, watcher)
                wait(running)
            return first_s

        found |= dict.fromkeys(("restart_s", "restored_s"), math.nan)
        try:
            found["restart_s"] = begin_again()
            shutil.rmtree(folder / "checkpoint")
            found["restored_s"] = begin_again()
            exact &= stays_exact(watcher, reports.sums, SETTLE_S)
        except SideError as error:  # the earlier measurements are still useful
            print(f"bench: {error}", file=sys.stderr)
            exact = False
    return {**found, "exact": exact}


class _Place(NamedTuple):
    """An aggregator that is measured, its folder and its topics."""

    running: Running
    meter: Meter
    folder: Path
    topics: Topics

    def log_bytes(self) -> tuple[int, int]:
        """Return the bytes of `metrics` and of `metrics-table`."""
        return log_bytes(self.folder, self.topics.metrics), log_bytes(self.folder, self.topics.table)


def _report(place: _Place, reports: _Reports, watcher: Watcher, seconds: float) -> dict[str, Any]:
    """Measure `seconds` of reports, until their sums are right."""
    meter, base = place.meter, reports.sums.copy()
    reports.forget()
    cpu_s, others_s = meter.cpu_s(), meter.others_s()
    sent, logs, began = reports.sent, place.log_bytes(), time.monotonic()
    recording = Recording(watcher)
    reports.paced(seconds)
    took = time.monotonic() - began
    while not watcher.matches(reports.sums) and time.monotonic() - began - took < PATIENCE_S:
        place.running.require_alive()
        time.sleep(0.01)
    whole = time.monotonic() - began
    cpu_s, others_s = meter.cpu_s() - cpu_s, meter.others_s() - others_s
    time.sleep(SETTLE_S)
    arrivals = recording.stop()
    sent = reports.sent - sent
    bytes_of = [(has - had) / sent for has, had in zip(place.log_bytes(), logs, strict=True)]
    updates, times = reports.published()
    timed = latencies(updates, base, times, arrivals).seconds
    timed = timed[~np.isnan(timed)]
    return {
        "records_per_s": sent / took,
        "record_bytes": bytes_of[0],
        "table_record_bytes": bytes_of[1],
        "table_update_bytes": bytes_of[1] / METRICS,
        "cores": cpu_s / whole,
        "cpu_s_per_million": cpu_s / (sent * METRICS) * 1e6,
        "others_cores": others_s / whole,
        **{f"p{percent}_ms": percentile(timed, percent) * 1000 for percent in (50, 99)},
        "gap_ms": longest_gap(arrivals, float(times[0]), float(times[-1])) * 1000,
        "drain_s": whole - took,
        "peak_mb": meter.peak_bytes / 1e6,
    }


def log_bytes(folder: Path, topic: str) -> int:
    """Return the size of a topic on the broker's disk, in bytes."""
    logs = folder.with_name("broker").rglob(f"{topic}-[0-9]*/*.log")
    return sum(path.stat().st_size for path in logs)


def _first_sum(running: Running, watcher: Watcher) -> float:
    """Return the seconds from the launch to the first new sum."""
    before = watcher.sums.copy()
    while (watcher.sums == before).all():
        if watcher.poll(0.1) is None:
            running.require_alive()
    return running.passed()
