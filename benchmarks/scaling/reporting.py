"""One stage: a fleet publishes as reporters do, and the resources that the aggregator uses are measured."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.aggregator.backlog import stays_exact, wait_for_sums
from benchmarks.aggregator.batch_cost import SETTLE_S
from benchmarks.aggregator.load import Fleet, Snapshots, Updates
from benchmarks.aggregator.scraping import Slowest, batches, scrape
from benchmarks.aggregator.sides import COMMAND, Ours, Running, SideError
from benchmarks.aggregator.topic import admin, producer_of
from benchmarks.aggregator.usage import Meter
from benchmarks.aggregator.watch import Watcher
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_cli.servers.process import free_port

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

METRICS = 100
PATIENCE_S = 1800.0
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

    @property
    def sums(self) -> NDArray[np.int64]:
        """The sums of everything published, by metric."""
        return self._updates.sums

    def publish(self, instances: int) -> None:
        """Publish the next instances' snapshots without waiting for their delivery."""
        for key, value in self._snapshots.render(self._updates.take(instances * self._fleet.metrics)):
            self._producer.produce(self._topic, value, key, 0)
        self.sent += instances
        self._producer.poll(0)

    def all_once(self) -> None:
        """Publish a snapshot of every instance."""
        for first in range(0, self._fleet.instances, 1000):
            self.publish(min(1000, self._fleet.instances - first))
            self._producer.flush(PATIENCE_S)

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
    """Measure `seconds` of reports after as many that are not measured, then a restart, and a rebuild.

    `exact` tells whether the sums were right at the end of each.

    Raises:
        SideError: the aggregator ended, or did not come to the right sums, before the restart.
    """
    topics, port = Topics(f"s{time.time_ns():x}-"), free_port()
    served = side.with_options("--shards", str(shards), "--http-port", str(port))
    create_topics(admin(bootstrap_servers), topics, shards=shards)
    reports = _Reports(bootstrap_servers, topics.metrics, fleet, every_s)
    reports.all_once()
    with Watcher(bootstrap_servers, topics.agg, fleet.names) as watcher:

        def wait(running: Running) -> None:
            wait_for_sums(watcher, running, reports.sums, running.passed() + PATIENCE_S)

        def is_exact(running: Running) -> bool:
            wait(running)
            return stays_exact(watcher, reports.sums, SETTLE_S)

        with Running(served, bootstrap_servers, topics.prefix, folder) as running, Meter(running.pid) as meter:
            wait(running)
            found = {"loaded_s": running.passed(), "lives": fleet.instances, "shards": shards}
            reports.one()  # its sum comes from a later batch: the one with the first snapshots has ended by then
            wait(running)
            time.sleep(SETTLE_S)  # until that batch's time is on /metrics
            with Slowest(port) as slowest:  # over both halves, as rare work such as a copy of the state is in one
                reports.paced(seconds)
                exact = is_exact(running)
                found |= _report(_Place(meter, port, folder, topics), reports, seconds, lambda: wait(running))
            found["slowest_ms"] = slowest.ms
            exact &= is_exact(running)
        stored = sum(path.stat().st_size for path in (folder / "checkpoint").rglob("*") if path.is_file())
        found |= {"checkpoint_mb": stored / 1e6}

        def begin_again(folder: Path) -> float:
            reports.one()
            with Running(served, bootstrap_servers, topics.prefix, folder) as running:
                first_s = _first_sum(running, watcher)
                wait(running)
            return first_s

        found |= dict.fromkeys(("restart_s", "rebuild_s", "rebuilt_s"), math.nan)
        try:
            found["restart_s"] = begin_again(folder)
            again = folder.with_name("rebuilt")
            found["rebuild_s"] = rebuild(bootstrap_servers, topics.prefix, again)
            found["rebuilt_s"] = found["rebuild_s"] + begin_again(again)
            exact &= stays_exact(watcher, reports.sums, SETTLE_S)
        except SideError as error:  # the earlier measurements are still useful
            print(f"bench: {error}", file=sys.stderr)
            exact = False
    return {**found, "exact": exact}


class _Place(NamedTuple):
    """The processes, `/metrics` port, folder and topics of an aggregator that is measured."""

    meter: Meter
    port: int
    folder: Path
    topics: Topics

    def log_bytes(self) -> tuple[int, int]:
        """Return the bytes of `metrics` and of `metrics-table`."""
        return log_bytes(self.folder, self.topics.metrics), log_bytes(self.folder, self.topics.table)


def _report(place: _Place, reports: _Reports, seconds: float, wait: Callable[[], object]) -> dict[str, Any]:
    """Measure `seconds` of reports. `wait` returns when the sums are right."""
    meter = place.meter
    before, cpu_s, others_s = scrape(place.port), meter.cpu_s(), meter.others_s()
    sent, logs, began = reports.sent, place.log_bytes(), time.monotonic()
    reports.paced(seconds)
    took = time.monotonic() - began
    wait()
    drain_s = time.monotonic() - began - took
    time.sleep(SETTLE_S)  # until the measurements include the last batch
    after, whole = scrape(place.port), time.monotonic() - began
    cpu_s, others_s = meter.cpu_s() - cpu_s, meter.others_s() - others_s
    sent, measured = reports.sent - sent, batches(before, after)
    bytes_of = [(has - had) / sent for has, had in zip(place.log_bytes(), logs, strict=True)]
    return {
        "rows": int(after["tallystream_table_rows", "", ""]),
        "records_per_s": sent / took,
        "record_bytes": bytes_of[0],
        "table_record_bytes": bytes_of[1],
        "cores": cpu_s / whole,
        "cpu_s_per_million": cpu_s / (sent * METRICS) * 1e6,
        "others_cores": others_s / whole,
        "batches": measured.number,
        "batch_ms": measured.mean_ms,
        "cpu_ms_per_batch": cpu_s / measured.number * 1000,
        "drain_s": drain_s,
        "peak_rss_mb": meter.peak_rss / 1e6,
        "state_mb": after["tallystream_table_state_bytes", "", ""] / 1e6,
    }


def log_bytes(folder: Path, topic: str) -> int:
    """Return the size of a topic on the broker's disk, in bytes."""
    logs = folder.with_name("broker").rglob(f"{topic}-[0-9]*/*.log")
    return sum(path.stat().st_size for path in logs)


def rebuild(bootstrap_servers: str, prefix: str, folder: Path) -> float:
    """Make the table again from `metrics-table` for a checkpoint in `folder`; return the seconds that this took.

    Raises:
        SideError: it failed.
    """
    folder.mkdir(parents=True)
    asked = ("--bootstrap-servers", bootstrap_servers, "--topic-prefix", prefix)
    began = time.monotonic()
    done = subprocess.run(
        [COMMAND, "rebuild", *asked, "--checkpoint", str(folder / "checkpoint")],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    if done.returncode:
        raise SideError(f"rebuild ended with {done.returncode}; it said:\n{(done.stdout + done.stderr)[-2000:]}")
    return time.monotonic() - began


def _first_sum(running: Running, watcher: Watcher) -> float:
    """Return the seconds from the launch to the first new sum."""
    before = watcher.sums.copy()
    while (watcher.sums == before).all():
        if watcher.poll(0.1) is None:
            running.require_alive()
    return running.passed()
