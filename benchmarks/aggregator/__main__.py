"""Compare the aggregator with Kafka Streams in one run: make bench-aggregator."""

from __future__ import annotations

import sys

from benchmarks.aggregator import report
from benchmarks.aggregator.figures import FIGURES
from benchmarks.aggregator.runner import ROOT, Benchmark, run

BENCHMARK = Benchmark(
    "python -m benchmarks.aggregator",
    __doc__,
    FIGURES,
    report.tables,
    ROOT / ".build" / "bench-aggregator",
    ROOT / "docs" / "aggregator-benchmarks.md",
)

if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
