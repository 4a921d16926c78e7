"""The figures: their names, their sizes, and the sides that take part in each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.aggregator.backlog import Form, backlog
from benchmarks.aggregator.growth import METRICS, growth
from benchmarks.aggregator.live import live
from benchmarks.aggregator.load import Fleet
from benchmarks.aggregator.sides import Ours

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.aggregator.sides import Side

OURS, PEER, PEER_LINGER_0 = "ours", "kstreams", "kstreams-linger0"
"""As --sides names them: Kafka Streams with exactly_once_v2, and with at_least_once and linger 0."""
DEFAULT = "1s"
"""The `--latency` that a user gets."""
BOTH, ALL = (OURS, PEER), (OURS, PEER, PEER_LINGER_0)


class Backlog(NamedTuple):
    """A backlog of `updates`."""

    name: str
    updates: int
    form: Form
    sides: tuple[str, ...]
    patience_s: float = 1800.0

    def measure(self, bootstrap_servers: str, side: Side, folder: Path, scale: float) -> dict[str, Any]:
        """Measure one side; `scale` makes it smaller."""
        fleet = Fleet()
        n = max(fleet.metrics, int(self.updates * scale) // fleet.metrics * fleet.metrics)
        return backlog(bootstrap_servers, side, folder, n=n, form=self.form, fleet=fleet, patience_s=self.patience_s)


class Live(NamedTuple):
    """Updates at a rate for `seconds` after a warm-up, which are what `scale` makes smaller.

    `latency` is our side's `--latency`.
    """

    name: str
    rate: float
    sides: tuple[str, ...]
    latency: str = "low"
    warmup_s: float = 30.0
    seconds: float = 60.0

    def measure(self, bootstrap_servers: str, side: Side, folder: Path, scale: float) -> dict[str, Any]:
        """Measure one side."""
        warmup_s, seconds = (max(3.0, part * scale) for part in (self.warmup_s, self.seconds))
        if isinstance(side, Ours):
            side = side.with_latency(self.latency)
        found = live(bootstrap_servers, side, folder, rate=self.rate, warmup_s=warmup_s, seconds=seconds, fleet=Fleet())
        return {**found, "latency": self.latency if isinstance(side, Ours) else ""}


class Growth(NamedTuple):
    """Live updates on a table of `rows`."""

    name: str
    rows: int
    sides: tuple[str, ...] = (OURS,)
    rate: float = 2000.0
    warmup_s: float = 15.0
    seconds: float = 45.0

    def measure(self, bootstrap_servers: str, side: Side, folder: Path, scale: float) -> dict[str, Any]:
        """Measure our side."""
        if not isinstance(side, Ours):
            raise TypeError(f"{self.name} is measured on our side only")
        warmup_s, seconds = (max(3.0, part * scale) for part in (self.warmup_s, self.seconds))
        rows = max(METRICS, int(self.rows * scale))
        return growth(bootstrap_servers, side, folder, rows=rows, rate=self.rate, warmup_s=warmup_s, seconds=seconds)


FIGURES: tuple[Backlog | Live | Growth, ...] = (
    Backlog("backlog-2m", 2_000_000, "singles", BOTH),
    Live("latency-2000", 2_000, ALL),
    Live("latency-10000", 10_000, ALL),
    Live("default-10", 10, (OURS,), DEFAULT, warmup_s=90),
    Live("low-10", 10, (OURS,), warmup_s=90),
    Live("default-2000", 2_000, (OURS,), DEFAULT),
    Backlog("backlog-10m", 10_000_000, "singles", BOTH),
    Backlog("backlog-10m-snapshots", 10_000_000, "snapshots", (OURS,)),
    Backlog("backlog-100m-snapshots", 100_000_000, "snapshots", (OURS,)),
    Growth("growth-10k", 10_000),
    Growth("growth-100k", 100_000),
    Growth("growth-1m", 1_000_000),
)
