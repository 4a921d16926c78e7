"""A backlog: all records are on the topic before the launch. The time until the final sums is measured."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Literal

from benchmarks.aggregator.load import Fleet, Snapshots, Updates, singles
from benchmarks.aggregator.sides import Running, Side, SideError
from benchmarks.aggregator.topic import admin, preload
from benchmarks.aggregator.usage import Meter
from benchmarks.aggregator.watch import Watcher
from tallystream_aggregator.kafka.topics import Topics, create_topics

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

Form = Literal["singles", "snapshots"]
SETTLE_S = 3.0
"""The sums have to stay right for this time."""


def fill(bootstrap_servers: str, topics: Topics, updates: Updates, n: int, form: Form) -> int:
    """Publish the next `n` updates in the given form. Return how many records the topic has then."""
    now = int(time.time() * 1000)
    fleet, snapshots = updates.fleet, Snapshots(updates.fleet, now)

    def records() -> Iterator[tuple[bytes, bytes]]:
        for piece in updates.pieces(n):
            yield from singles(fleet, piece, now) if form == "singles" else snapshots.render(piece)

    return preload(bootstrap_servers, topics.metrics, records())


def backlog(
    bootstrap_servers: str, side: Side, folder: Path, *, n: int, form: Form, fleet: Fleet, max_wait_s: float
) -> dict[str, Any]:
    """Measure one side on a backlog of `n` updates. In the result, `exact` tells whether the sums were right."""
    topics, updates = Topics(f"b{time.time_ns():x}-"), Updates(fleet)
    create_topics(admin(bootstrap_servers), topics)
    began = time.monotonic()
    records = fill(bootstrap_servers, topics, updates, n, form)
    preload_s = time.monotonic() - began
    print(f"bench: {records:,} records preloaded in {preload_s:.1f} s", file=sys.stderr)
    with (
        Watcher(bootstrap_servers, side.output(topics.prefix), fleet.names) as watcher,
        Running(side, bootstrap_servers, topics.prefix, folder) as running,
        Meter(running.pid) as meter,
    ):
        wait_for_sums(watcher, running, updates.sums, max_wait_s)
        wall_s, cpu_s, others_s = running.passed(), meter.cpu_s(), meter.others_s()
        exact = stays_exact(watcher, updates.sums, SETTLE_S)
    return {
        "updates": n,
        "records": records,
        "form": form,
        "wall_s": wall_s,
        "updates_per_s": n / wall_s,
        "cpu_s": cpu_s,
        "cpu_s_per_million": cpu_s / n * 1e6,
        "peak_mb": meter.peak_bytes / 1e6,
        "others_cores": others_s / wall_s,
        "sums_received": watcher.received,
        "preload_s": preload_s,
        "exact": exact,
    }


def wait_for_sums(watcher: Watcher, running: Running, expected: NDArray[np.int64], max_wait_s: float) -> None:
    """Return when the newest sums are the expected ones.

    Raises:
        SideError: the process has ended, or the sums were not right `max_wait_s` seconds after its launch.
    """
    while not watcher.matches(expected):
        if watcher.poll(0.1) is None:
            running.require_alive()
        if running.passed() > max_wait_s:
            right = int((watcher.sums == expected).sum())
            raise SideError(f"after {max_wait_s:g} s {right} of {len(expected)} sums are right")


def stays_exact(watcher: Watcher, expected: NDArray[np.int64], seconds: float) -> bool:
    """Read the sums for some more seconds. Return whether they are still the expected ones."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        watcher.poll(0.1)
    return watcher.matches(expected)
