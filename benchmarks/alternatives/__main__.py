"""Measure vmagent with the updates of the aggregator: python -m benchmarks.alternatives VMAGENT [--updates N].

VMAGENT is its binary. benchmarks/README.md says how to build it, and what the figures mean.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.aggregator.report import table
from benchmarks.alternatives import vmagent


def main() -> int:
    """Measure and print the table. Return 1 if a sum was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("vmagent", type=Path, help="the path of the vmagent binary")
    parser.add_argument("--updates", type=int, default=2_000_000, help="the number of updates")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = vmagent.measure(options.vmagent, Path(folder), options.updates)
    cells = [f"{found['updates']:,}", f"{found['wall_s']:.1f}", f"{found['cpu_s']:.1f}", f"{found['peak_mb']:,.0f}"]
    cells += ["exact" if found["exact"] else "**wrong**", "yes" if found["forgets_after_a_restart"] else "no"]
    heads = ["vmagent: updates", "s from launch", "CPU s", "peak MB", "sums", "forgets after a restart"]
    print(table(heads, [cells]))
    return 0 if found["exact"] else 1


if __name__ == "__main__":
    sys.exit(main())
