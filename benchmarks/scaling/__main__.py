"""Measure the cost of tables of different sizes while their instances report, and estimate larger fleets."""

from __future__ import annotations

import sys

from benchmarks.aggregator.runner import ROOT, Benchmark, run
from benchmarks.scaling.sizing import tables
from benchmarks.scaling.stages import STAGES

BENCHMARK = Benchmark(
    "python -m benchmarks.scaling",
    __doc__,
    STAGES,
    tables,
    ROOT / ".build" / "bench-scaling",
    ROOT / "docs" / "scaling.md",
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
