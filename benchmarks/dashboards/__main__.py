"""How long the queries of Grafana's dashboards and alert rules take on a real InfluxDB 2.7 with hours of many metrics.

    PYTHONPATH=tests .venv/bin/python -m benchmarks.dashboards [--metrics 200] [--instances 50] [--hours 6]
        [--panel TITLE] [--keep FOLDER]

Every metric has a point each ten seconds, and, as of a shipper with --rows, one of each instance; 20 groups lag in ten
partitions each. Everything is chosen that can be: all apps, metrics, instances, groups; in Metric and Instances one
metric, of the panel's type. Of each panel: the median of --times, from its first query to the last byte of the last
answer, one query after the other, and how many rows came. --keep names a folder for the server's data, so that the
next run fills nothing.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path

from benchmarks.dashboards.asking import FLAVOURS, LIMIT_S, Server, panels, put_in
from benchmarks.dashboards.points import lines
from support.influxd import InfluxServer
from tallystream_dashboards.grafana import Settings
from tallystream_dashboards.grafana.alerts.flux import queries

REQUEST = 20_000


def main() -> None:
    """Fill a server of its own, ask, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", type=int, default=200)
    parser.add_argument("--instances", type=int, default=50)
    parser.add_argument("--hours", type=float, default=6)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--panel", default="", help="panels and rules with this in their name, and no others")
    parser.add_argument("--keep", type=Path, default=None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, InfluxServer(asked.keep or Path(folder)) as influxd:
        server = Server(influxd)
        end_ms = _filled(server, (asked.keep or Path(folder)) / "end", asked)
        spans = (1.0, asked.hours)
        heads = [f"{flavour}, {hours:g} h" for flavour in FLAVOURS for hours in spans]
        print(f"| dashboard | panel | {' | '.join(heads)} |\n|---|---|{'---|' * len(heads)}")
        for board, title, wanted in panels(asked.panel):
            cells = []
            for flavour in FLAVOURS:
                for hours in spans:
                    texts = [put_in(one, board, title, end_ms=end_ms, hours=hours) for one in wanted[flavour]]
                    cells.append(_measured(server, flavour, texts, asked.times))
            print(f"| {board} | {title} | {' | '.join(cells)} |", flush=True)
        print("\n| alert rule | flux |\n|---|---|")
        for slug, text in queries(Settings()).items():
            if asked.panel in slug:
                print(f"| {slug} | {_measured(server, 'flux', [text], asked.times)} |", flush=True)


def _filled(server: Server, mark: Path, asked: argparse.Namespace) -> int:
    """Fill the server, unless it was, and return the time of the newest point (epoch ms)."""
    if mark.exists():
        return int(mark.read_text())
    began, points, end_ms = time.monotonic(), 0, round(time.time()) * 1000
    found = lines(end_ms, asked.hours, asked.metrics, asked.instances)
    while chunk := list(islice(found, REQUEST)):
        server.write("\n".join(chunk))
        points += len(chunk)
    mark.write_text(str(end_ms))
    print(f"{points:,} points were written in {time.monotonic() - began:.0f} s\n")
    return end_ms


def _measured(server: Server, flavour: str, texts: list[str], times: int) -> str:
    """Return the seconds and the rows of a panel's queries."""
    if not texts:
        return "-"
    took = []
    for _ in range(times):
        began = time.perf_counter()
        try:
            rows = sum(server.rows(flavour, text) for text in texts)
        except TimeoutError:
            return f"more than {LIMIT_S} s"
        took.append(time.perf_counter() - began)
    return f"{statistics.median(took):.2f} s, {rows:,}"


if __name__ == "__main__":
    main()
