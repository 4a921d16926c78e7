"""Updates at a rate: the latency of each update, and whether the side keeps up."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.aggregator.backlog import SETTLE_S
from benchmarks.aggregator.load import Fleet, Updates
from benchmarks.aggregator.sides import Running, Side
from benchmarks.aggregator.topic import admin, send_live
from benchmarks.aggregator.usage import Meter
from benchmarks.aggregator.watch import Recording, Watcher
from tallystream_aggregator.kafka.topics import Topics, create_topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.aggregator.load import UpdateSlice
    from benchmarks.aggregator.watch import Arrival

MAX_START_S = 300.0
MAX_DRAIN_S = 120.0
KEEPS_UP_S = 3.0
"""A side keeps up when its last sums are right within this time after the last update."""


class Latencies(NamedTuple):
    """The latency of each update in seconds, in the order of the updates; NaN for one that is in no sum.

    `inconsistent` counts sums that are not the sum of a metric's first k updates for any k. Such a sum is published
    between two steps, when an old reading is subtracted and the new one is not yet added.
    """

    seconds: NDArray[np.float64]
    inconsistent: int


def latencies(
    updates: UpdateSlice, base: NDArray[np.int64], sent: NDArray[np.float64], arrivals: Iterable[Arrival]
) -> Latencies:
    """Return the time from sending each update to the first sum that includes it.

    `base` is the sum of each metric before the first update. `sent` is the time of each update in epoch seconds.
    Counters only grow, so the value of a sum tells how many updates of its metric it includes, for every side.
    """
    metrics = len(base)
    numbers = [(metric - updates.first) % metrics for metric in range(metrics)]
    reached = [base[metric] + np.cumsum(updates.steps[begin::metrics]) for metric, begin in enumerate(numbers)]
    times = [sent[begin::metrics] for begin in numbers]
    seconds = np.full(len(sent), math.nan)
    views = [seconds[begin::metrics] for begin in numbers]
    seen, inconsistent = [0] * metrics, 0
    for time_s, metric, total in arrivals:
        included = int(np.searchsorted(reached[metric], total, side="right"))
        if included and reached[metric][included - 1] != total:
            inconsistent += 1
        begin = seen[metric]
        if included > begin:
            views[metric][begin:included] = time_s - times[metric][begin:included]
            seen[metric] = included
    return Latencies(seconds, inconsistent)


def percentile(values: NDArray[np.float64], percent: float) -> float:
    """Return the smallest value that is not exceeded by at least `percent` % of the values; NaN if there is none."""
    if not len(values):
        return math.nan
    ordered = np.sort(values)
    return float(ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)])


def longest_gap(arrivals: Iterable[Arrival], begin_s: float, end_s: float) -> float:
    """Return the longest time in seconds without a new sum, from `begin_s` to `end_s` in epoch seconds."""
    times = [begin_s, *(one.time for one in arrivals if begin_s < one.time < end_s), end_s]
    return float(np.diff(times).max())


def live(
    bootstrap_servers: str, side: Side, folder: Path, *, rate: float, warmup_s: float, seconds: float, fleet: Fleet
) -> dict[str, Any]:
    """Measure one side at `rate` updates a second for `seconds`, after `warmup_s` at the same rate.

    `cpu_cores` is the mean over `seconds`, and `gap_ms` the longest time without a new sum in them.
    """
    topics, updates = Topics(f"l{time.time_ns():x}-"), Updates(fleet)
    create_topics(admin(bootstrap_servers), topics)
    warmup_updates, measured_updates = int(rate * warmup_s), int(rate * seconds)
    with (
        Watcher(bootstrap_servers, side.output(topics.prefix), fleet.names) as watcher,
        Running(side, bootstrap_servers, topics.prefix, folder) as running,
    ):
        ready_s = running.wait_ready(MAX_START_S)
        with Meter(running.pid) as meter:
            recording = Recording(watcher)
            send_live(bootstrap_servers, topics.metrics, fleet, updates.take(warmup_updates), rate=rate)
            base, measured = updates.sums.copy(), updates.take(measured_updates)
            began, cpu_s, others_s = time.monotonic(), meter.cpu_s(), meter.others_s()
            sent = send_live(bootstrap_servers, topics.metrics, fleet, measured, rate=rate)
            cpu_s, others_s, took_s = meter.cpu_s() - cpu_s, meter.others_s() - others_s, time.monotonic() - began
            drain_s = _wait(lambda: watcher.matches(updates.sums), running)
            time.sleep(SETTLE_S)
            arrivals = recording.stop()
    found = latencies(measured, base, sent.times, arrivals)
    included = found.seconds[~np.isnan(found.seconds)]
    period = float(sent.times[0]), float(sent.times[-1])
    return {
        "rate": rate,
        "seconds": seconds,
        "warmup_s": warmup_s,
        "ready_s": ready_s,
        **{f"p{percent}_ms": percentile(included, percent) * 1000 for percent in (50, 95, 99, 100)},
        "gap_ms": longest_gap(arrivals, *period) * 1000,
        "drain_s": drain_s,
        "keeps_up": drain_s <= KEEPS_UP_S and len(included) == measured_updates,
        "not_included": measured_updates - len(included),
        "inconsistent_sums": found.inconsistent,
        "sent_late_ms": sent.worst_lag_s * 1000,
        "cpu_cores": cpu_s / took_s,
        "peak_mb": meter.peak_bytes / 1e6,
        "others_cores": others_s / took_s,
        "sums_received": watcher.received,
        "exact": watcher.matches(updates.sums),
    }


def idle(bootstrap_servers: str, side: Side, folder: Path, *, warmup_s: float, seconds: float) -> dict[str, Any]:
    """Measure one side for `seconds` while nothing is published, `warmup_s` after it was ready."""
    topics = Topics(f"i{time.time_ns():x}-")
    create_topics(admin(bootstrap_servers), topics)
    with Running(side, bootstrap_servers, topics.prefix, folder) as running:
        ready_s = running.wait_ready(MAX_START_S)
        with Meter(running.pid) as meter:
            time.sleep(warmup_s)
            cpu_s, others_s = meter.cpu_s(), meter.others_s()
            time.sleep(seconds)
            running.require_alive()
            cores, others = (meter.cpu_s() - cpu_s) / seconds, (meter.others_s() - others_s) / seconds
    return {
        "seconds": seconds,
        "ready_s": ready_s,
        "cpu_cores": cores,
        "peak_mb": meter.peak_bytes / 1e6,
        "others_cores": others,
        "exact": True,
    }


def _wait(done: Callable[[], bool], running: Running) -> float:
    """Return the seconds until `done` is true, at most `MAX_DRAIN_S`."""
    began = time.monotonic()
    while not done() and time.monotonic() - began < MAX_DRAIN_S:
        running.require_alive()
        time.sleep(0.01)
    return time.monotonic() - began
