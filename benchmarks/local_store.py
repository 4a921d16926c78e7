"""Measure how fast the local store writes and reads points, in batches as the shipper writes them.

.venv/bin/python benchmarks/local_store.py
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.sqlite.sink import LocalStore


def main() -> None:
    """Write `--points` points of `--series` series, one batch in each transaction. Then read one and all series."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=200_000, help="the number of points")
    parser.add_argument("--series", type=int, default=50, help="the number of series")
    parser.add_argument("--batch", type=int, default=1_000, help="the points in each transaction")
    parser.add_argument("--dir", type=Path, default=None, help="the folder for the file of the store")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.dir) as folder:
        path = Path(folder) / "store.db"
        points = [
            Point(
                "benchmark",
                {"app": "orders", "instance": str(i % options.series)},
                {"count": i, "m1_rate": i / 7, "lives": 2, "instances": 2, "retired": 0},
                1_700_000_000_000 + i // options.series * 500,
            )
            for i in range(options.points)
        ]
        store = LocalStore(path, retention_ms=0)
        store.setup()
        seconds = []
        for at in range(0, len(points), options.batch):
            began = time.perf_counter()
            store.write(points[at : at + options.batch])
            seconds.append(time.perf_counter() - began)
        total = sum(seconds)
        seconds.sort()
        print(
            f"write: {len(points) / total:,.0f} points/s; a batch of {options.batch}: median "
            f"{seconds[len(seconds) // 2] * 1000:.1f} ms, p99 {seconds[int(len(seconds) * 0.99)] * 1000:.1f} ms"
        )
        began = time.perf_counter()
        store.write(points[: options.batch])
        print(f"the first batch again: {(time.perf_counter() - began) * 1000:.1f} ms")
        store.close()
        reader = LocalStore(path)
        for what, tags in (("one series", {"instance": "7"}), ("all series", {})):
            began = time.perf_counter()
            found = reader.read("benchmark", ["count"], start_ms=0, end_ms=2**62, tags=tags)
            took = time.perf_counter() - began
            values = sum(len(series.values) for series in found)
            print(f"read {what}: {values:,} values in {took * 1000:.0f} ms, {values / took:,.0f} values/s")
        reader.close()
        print(f"{path.stat().st_size / len(points):.0f} bytes for each point")


if __name__ == "__main__":
    main()
