"""The figures that are measured: their names, their sizes and the sides that take part."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.aggregator.backlog import Form, backlog
from benchmarks.aggregator.live import idle, live
from benchmarks.aggregator.load import Fleet
from benchmarks.aggregator.sides import ALL, OURS, PEER, Ours
from benchmarks.table.loads import ALL as LOADS
from benchmarks.table.loads import HOSTILE
from benchmarks.table.measuring import measure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.aggregator.sides import Side

DEFAULT = "1s"
"""The default of `--latency`."""
BOTH = (OURS, PEER)


class Backlog(NamedTuple):
    """A backlog of `updates`."""

    name: str
    updates: int
    form: Form
    sides: tuple[str, ...]
    max_wait_s: float = 1800.0

    def measure(self, bootstrap_servers: str, side: Side, folder: Path, scale: float) -> dict[str, Any]:
        """Measure one side, with the updates multiplied by `scale`."""
        fleet = Fleet()
        n = max(fleet.metrics, int(self.updates * scale) // fleet.metrics * fleet.metrics)
        return backlog(bootstrap_servers, side, folder, n=n, form=self.form, fleet=fleet, max_wait_s=self.max_wait_s)


class Live(NamedTuple):
    """Updates at a rate for `seconds` after a warm-up. `scale` multiplies both times.

    `latency` is the `--latency` of our side. With `busy`, one more process for each core loops all the time.
    """

    name: str
    rate: float
    sides: tuple[str, ...]
    latency: str = "low"
    warmup_s: float = 30.0
    seconds: float = 60.0
    busy: bool = False

    def measure(self, bootstrap_servers: str, side: Side, folder: Path, scale: float) -> dict[str, Any]:
        """Measure one side."""
        warmup_s, seconds = (max(3.0, length * scale) for length in (self.warmup_s, self.seconds))
        if isinstance(side, Ours):
            side = side.with_latency(self.latency)
        times = {"warmup_s": warmup_s, "seconds": seconds}
        with busy_loops() if self.busy else nullcontext():
            found = live(bootstrap_servers, side, folder, rate=self.rate, **times, fleet=Fleet())
        return {**found, "busy": self.busy, "latency": self.latency if isinstance(side, Ours) else ""}


class Idle(NamedTuple):
    """Our side while nothing is published. `scale` multiplies the times."""

    name: str
    sides: tuple[str, ...] = (OURS,)
    warmup_s: float = 90.0
    seconds: float = 60.0

    def measure(self, bootstrap_servers: str, side: Side, folder: Path, scale: float) -> dict[str, Any]:
        """Measure our side."""
        warmup_s, seconds = (max(3.0, length * scale) for length in (self.warmup_s, self.seconds))
        return idle(bootstrap_servers, side, folder, warmup_s=warmup_s, seconds=seconds)


class TableAlone(NamedTuple):
    """The table in this process, without Spark, with usual and hostile loads."""

    name: str
    sides: tuple[str, ...] = (OURS,)

    def measure(self, _bootstrap_servers: str, _side: Side, _folder: Path, scale: float) -> dict[str, Any]:
        """Measure the table."""
        loads = {
            name: measure(load.make(500, max(3, int(load.steps * scale))))._asdict() for name, load in LOADS.items()
        }
        hostile_us = max(loads[name]["total"] for name in HOSTILE)
        return {"loads": loads, "hostile_us": hostile_us, "exact": all(cost["exact"] for cost in loads.values())}


def only_ours(side: Side) -> Ours:
    """Return the side, which has to be ours.

    Raises:
        TypeError: it is not.
    """
    if not isinstance(side, Ours):
        raise TypeError(f"{side.name} does not take part in this figure")
    return side


@contextmanager
def busy_loops() -> Iterator[None]:
    """Keep each core busy with a process of its own until the block ends."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


FIGURES: tuple[Backlog | Live | Idle | TableAlone, ...] = (
    Backlog("backlog-2m", 2_000_000, "singles", BOTH),
    Live("latency-2000", 2_000, ALL, warmup_s=90),
    Live("latency-10000", 10_000, ALL, warmup_s=90),
    Live("latency-10000-busy", 10_000, (OURS,), warmup_s=90, busy=True),
    Live("steady-2000", 2_000, (OURS,), warmup_s=90, seconds=600),
    Live("default-10", 10, (OURS,), DEFAULT, warmup_s=90),
    Live("default-2000", 2_000, (OURS,), DEFAULT, warmup_s=90),
    Idle("idle"),
    Backlog("backlog-10m", 10_000_000, "singles", BOTH),
    Backlog("backlog-10m-snapshots", 10_000_000, "snapshots", (OURS,)),
    Backlog("backlog-100m-snapshots", 100_000_000, "snapshots", (OURS,)),
    TableAlone("table"),
)
