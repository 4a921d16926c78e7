"""Measure the queries of the Grafana dashboards and alert rules on a real InfluxDB 2.7 with hours of many metrics.

    PYTHONPATH=tests .venv/bin/python -m benchmarks.dashboards [--metrics 200] [--instances 50] [--hours 6]
        [--panel TITLE] [--keep FOLDER]

Every metric has one point in ten seconds, and also one for each instance, as with `tallystream ship --rows`. 20 groups
have lag in ten partitions each. The variables select all apps, metrics, instances and groups; the dashboards Metric and
Instances select one metric of the type that the panel shows. The queries of a panel run one after the other. For each
panel, the table has the median time and the number of rows. With --keep, the data stays in a folder for the next run.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path

from benchmarks.dashboards.points import lines
from benchmarks.dashboards.queries import TIMEOUT_S, Server, panels, replace_variables
from support.grafana_queries import rules
from support.influxd import InfluxServer
from tallystream_dashboards.grafana.settings import Settings

LINES_PER_REQUEST = 20_000


def main() -> None:
    """Fill a new server, run the queries, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--metrics", type=int, default=200, help="the number of metrics")
    parser.add_argument("--instances", type=int, default=50, help="the number of instances")
    parser.add_argument("--hours", type=float, default=6, help="the hours of data")
    parser.add_argument("--times", type=int, default=3, help="how often each panel is queried")
    parser.add_argument("--panel", default="", help="only panels and alert rules with this text in their name")
    parser.add_argument("--keep", type=Path, default=None, help="a folder that keeps the data for the next run")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, InfluxServer(options.keep or Path(folder)) as influxd:
        server = Server(influxd)
        end_ms = _filled(server, (options.keep or Path(folder)) / "end", options)
        spans = (1.0, options.hours)
        heads = [f"{hours:g} h" for hours in spans]
        print(f"| dashboard | panel | {' | '.join(heads)} |\n|---|---|{'---|' * len(heads)}")
        for board, title, wanted in panels(options.panel):
            cells = []
            for hours in spans:
                texts = [replace_variables(one, board, title, end_ms=end_ms, hours=hours) for one in wanted]
                cells.append(_measured(server, texts, options.times))
            print(f"| {board} | {title} | {' | '.join(cells)} |", flush=True)
        print("\n| alert rule | flux |\n|---|---|")
        for rule in rules(Settings()):
            if options.panel in rule.slug:
                print(f"| {rule.slug} | {_measured(server, [rule.query], options.times)} |", flush=True)


def _filled(server: Server, mark: Path, options: argparse.Namespace) -> int:
    """Fill the server if it is empty. Return the time of the newest point in epoch ms."""
    if mark.exists():
        return int(mark.read_text())
    began, points, end_ms = time.monotonic(), 0, round(time.time()) * 1000
    all_lines = lines(end_ms, options.hours, options.metrics, options.instances)
    while chunk := list(islice(all_lines, LINES_PER_REQUEST)):
        server.write("\n".join(chunk))
        points += len(chunk)
    mark.write_text(str(end_ms))
    print(f"{points:,} points were written in {time.monotonic() - began:.0f} s\n")
    return end_ms


def _measured(server: Server, texts: list[str], times: int) -> str:
    """Return the median seconds and the rows of the queries of a panel."""
    took = []
    for _ in range(times):
        began = time.perf_counter()
        try:
            rows = sum(server.rows(text) for text in texts)
        except TimeoutError:
            return f"more than {TIMEOUT_S} s"
        took.append(time.perf_counter() - began)
    return f"{statistics.median(took):.2f} s, {rows:,}"


if __name__ == "__main__":
    main()
