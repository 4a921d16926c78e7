"""Measure other systems with the same updates: python -m benchmarks.alternatives --vmagent PATH --prometheus PATH.

Those are measured whose options name the binaries. benchmarks/README.md says how to build vmagent and the Collector,
and what the figures mean.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.aggregator.report import table
from benchmarks.alternatives import collector, prometheus, vmagent


def main() -> int:
    """Measure and print the tables. Return 1 if a sum was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vmagent", type=Path, help="the path of the vmagent binary")
    parser.add_argument("--prometheus", type=Path, help="the path of the prometheus binary")
    parser.add_argument("--collector", type=Path, help="the path of the binary of the OpenTelemetry Collector")
    parser.add_argument("--updates", type=int, default=2_000_000, help="the number of updates for each of them")
    options = parser.parse_args()
    exact = []
    with tempfile.TemporaryDirectory() as folder:
        if options.vmagent is not None:
            one = vmagent.measure(options.vmagent, Path(folder) / "vmagent", options.updates)
            cells = [f"{one['updates']:,}", f"{one['wall_s']:.1f}", f"{one['cpu_s']:.1f}", f"{one['peak_mb']:,.0f}"]
            cells += ["exact" if one["exact"] else "**wrong**", "yes" if one["forgets_after_a_restart"] else "no"]
            heads = ["vmagent: updates", "s from launch", "CPU s", "peak MB", "sums", "forgets after a restart"]
            print(table(heads, [cells]))
            exact.append(one["exact"])
        if options.prometheus is not None:
            one = prometheus.measure(options.prometheus, Path(folder) / "prometheus", options.updates)
            cells = [f"{one['updates']:,}", f"{one['cpu_s']:.1f}", f"{one['peak_mb']:,.0f}"]
            print(table(["Prometheus: updates, scraped once a second", "CPU s", "peak MB"], [cells]))
        if options.collector is not None:
            one = collector.measure(options.collector, Path(folder) / "collector", options.updates)
            cells = [f"{one['updates']:,}", f"{one['wall_s']:.1f}", f"{one['cpu_s']:.1f}", f"{one['peak_mb']:,.0f}"]
            heads = ["Collector: updates", "s from launch", "CPU s", "peak MB", "sums of a request"]
            print(table(heads, [[*cells, "exact" if one["exact"] else "**wrong**"]]))
            exact.append(one["exact"])
    return 0 if all(exact) else 1


if __name__ == "__main__":
    sys.exit(main())
