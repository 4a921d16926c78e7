"""The stages: fleets with increasing numbers of rows. One of them has histograms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.aggregator.figures import only_ours
from benchmarks.aggregator.load import Fleet
from benchmarks.aggregator.sides import OURS
from benchmarks.scaling.reporting import METRICS, measure

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.aggregator.sides import Side


class Stage(NamedTuple):
    """A fleet of `instances` with 100 metrics each, which report every `every_s`.

    It reports for `seconds` without measurement, and then for `seconds` that are measured. `scale` multiplies
    instances and seconds.
    """

    name: str
    instances: int
    shards: int = 1
    every_s: float = 10.0
    histograms: int = 0
    seconds: float = 60.0
    latency: str = "1s"
    table_memory: str = "2g"
    sides: tuple[str, ...] = (OURS,)

    def measure(self, bootstrap_servers: str, side: Side, folder: Path, scale: float) -> dict[str, Any]:
        """Measure our side."""
        fleet = Fleet(max(10, int(self.instances * scale)), METRICS, histograms=self.histograms)
        seconds = max(5.0, self.seconds * scale)
        ours = only_ours(side).with_latency(self.latency).with_options("--table-memory", self.table_memory)
        return measure(
            bootstrap_servers, ours, folder, fleet=fleet, every_s=self.every_s, seconds=seconds, shards=self.shards
        )


STAGES = (
    Stage("rows-10k", 100),
    Stage("rows-100k", 1_000),
    Stage("rows-1m", 10_000),
    Stage("rows-1m-low", 10_000, latency="low"),
    Stage("rows-1m-histograms", 10_000, every_s=50, histograms=20),
    Stage("rows-1m-2-shards", 10_000, shards=2),
    Stage("rows-3m", 30_000, every_s=30),
    Stage("rows-10m", 100_000, every_s=100, seconds=300, table_memory="4g"),
)
