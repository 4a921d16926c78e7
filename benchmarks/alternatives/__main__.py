"""Measure other systems with the same updates: python -m benchmarks.alternatives [--vmagent PATH] [--prometheus PATH].

vmagent and Prometheus are measured if their options name the binaries. benchmarks/README.md says how to build vmagent,
and what the figures mean.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.aggregator.report import table
from benchmarks.alternatives import multiprocess, prometheus, vmagent


def main() -> int:
    """Measure and print the tables. Return 1 if a sum was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vmagent", type=Path, help="the path of the vmagent binary")
    parser.add_argument("--prometheus", type=Path, help="the path of the prometheus binary")
    parser.add_argument("--updates", type=int, default=2_000_000, help="the number of updates for each of them")
    options = parser.parse_args()
    exact = []
    with tempfile.TemporaryDirectory() as folder:
        rows = []
        for processes in (100, 1000, 5000):
            one = multiprocess.measure(Path(folder) / str(processes), processes)
            rows.append([f"{processes:,}", f"{one['scrape_s']:.2f}", f"{one['cpu_s']:.2f}", f"{one['files_mb']:,.0f}"])
            exact.append(one["exact"])
        print(
            table(
                ["prometheus_client: processes that ever ran, 50 counters each", "scrape s", "CPU s", "files MB"], rows
            )
        )
        if options.vmagent is not None:
            two = vmagent.measure(options.vmagent, Path(folder) / "vmagent", options.updates)
            cells = [f"{two['updates']:,}", f"{two['wall_s']:.1f}", f"{two['cpu_s']:.1f}", f"{two['peak_mb']:,.0f}"]
            cells += ["exact" if two["exact"] else "**wrong**", "yes" if two["forgets_after_a_restart"] else "no"]
            heads = ["vmagent: updates", "s from launch", "CPU s", "peak MB", "sums", "forgets after a restart"]
            print(table(heads, [cells]))
            exact.append(two["exact"])
        if options.prometheus is not None:
            three = prometheus.measure(options.prometheus, Path(folder) / "prometheus", options.updates)
            cells = [f"{three['updates']:,}", f"{three['cpu_s']:.1f}", f"{three['peak_mb']:,.0f}"]
            print(table(["Prometheus: updates, scraped once a second", "CPU s", "peak MB"], [cells]))
    return 0 if all(exact) else 1


if __name__ == "__main__":
    sys.exit(main())
