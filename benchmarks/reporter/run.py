"""Compare the reporter with other libraries: make bench-reporter.

.venv/bin/python benchmarks/reporter/run.py [--rounds N] [--scale X] [--out FILE]
"""

from __future__ import annotations

import argparse
import logging
import os
import platform
import sys
from importlib.metadata import version
from pathlib import Path

import interpreters
import outages
import pieces
import reports
import updates

ROOT = Path(__file__).parent.parent.parent
BEGIN, END = "<!-- results: written by make bench-reporter -->\n", "<!-- end of results -->\n"


def main() -> None:
    """Measure everything, print the tables, and write them into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="the number of rounds")
    parser.add_argument("--scale", type=float, default=1.0, help="a factor for the number of calls in a round")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/reporter-benchmarks.md", help="the page to write into")
    options = parser.parse_args()
    logging.getLogger("tallystream").setLevel(logging.CRITICAL)  # the dead broker is part of the benchmark
    sections = [
        _machine(),
        _updates(options.rounds, options.scale),
        _exactness(),
        _reports(options.rounds),
        _outages(options.rounds),
        _imports(options.rounds),
    ]
    text = "\n".join(sections)
    page = options.out.read_text()
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    options.out.write_text(before + BEGIN + "\n" + text + "\n" + END + after)


def _print(lines: list[str]) -> str:
    text = "\n".join(lines) + "\n"
    print(text, flush=True)
    return text


def _machine() -> str:
    peers = ", ".join(f"{name} {version(name)}" for name in interpreters.MODULES if name != "tallystream")
    load = os.getloadavg()[0]
    return _print(
        [
            f"CPython {platform.python_version()}, {os.cpu_count()} cores ({platform.machine()}), load {load:.1f}",
            f"at the beginning; {peers}; confluent-kafka {version('confluent-kafka')}.",
        ]
    )


def _updates(rounds: int, scale: float) -> str:
    names = [updates.OURS, updates.PROMETHEUS, updates.PYFORMANCE, updates.OTEL]
    lines = [
        "| an update, ns | " + " | ".join(names) + " | ours / prometheus_client | ours / pyformance |",
        "|---|" + "---|" * (len(names) + 2),
    ]
    for row in updates.rows(rounds, scale):
        cells = [f"{row.measured[name]:.0f}" if name in row.measured else "" for name in names]
        cells += [_ratio(row, peer) for peer in (updates.PROMETHEUS, updates.PYFORMANCE)]
        lines.append(f"| {row.what} | " + " | ".join(cells) + " |")
    return _print(lines)


def _ratio(row: updates.Row, peer: str) -> str:
    if peer not in row.measured:
        return ""
    ratio, goal = row.measured[updates.OURS] / row.measured[peer], row.goals.get(peer)
    return f"{ratio:.2f}" + ("" if goal is None else f" (goal {goal:g}: {_result(ratio <= goal)})")


def _result(met: bool) -> str:
    return "met" if met else "**missed**"


def _exactness() -> str:
    lines = ["| 8 threads, 1,000,000 times `inc()` each | lost | readings that decreased | ns |", "|---|---|---|---|"]
    paths = interpreters.found()
    for wanted in interpreters.WANTED:
        if wanted not in paths:
            lines.append(f"| CPython {wanted} | not on this machine | | |")
            continue
        found = interpreters.exactness(paths[wanted])
        if "error" in found:
            lines.append(f"| CPython {wanted} | could not run: {found['error']} | | |")
        else:
            lines.append(f"| CPython {found['version']} | {found['lost']} | {found['backward']} | {found['ns']:.0f} |")
    return _print(lines)


def _reports(rounds: int) -> str:
    lines = [
        "| a snapshot, encoded and given to the producer | ms | processor ms |",
        "|---|---|---|",
    ]
    for what, mix in reports.MIXES.items():
        cost = reports.report_cost(mix, 2 * rounds)
        goal = f" (goal {reports.GOAL_MS}: {_result(cost.worked <= reports.GOAL_MS)})"
        lines.append(f"| {what} | {cost.passed:.1f} | {cost.worked:.1f}{goal} |")
    for name, measured in reports.peers_cost(rounds).items():
        lines.append(f"| {name}: 1,000 counters as text | {measured:.1f} | |")
    lines += ["", "| what one metric adds to a report | processor µs |", "|---|---|"]
    lines += [f"| {what} | {measured:.1f} |" for what, measured in pieces.microseconds(rounds).items()]
    return _print(lines)


def _outages(rounds: int) -> str:
    measured = outages.dead_broker(max(rounds // 3, 3))
    early, late, waiting = outages.hour_of_outage()
    cells = [f"{value:.0f}" for value in measured.values()]
    return _print(
        [
            "| `counter.inc()`, ns | " + " | ".join(measured) + " |",
            "|---|---|---|---|",
            "| while the reporter runs, 10 reports a second | " + " | ".join(cells) + " |",
            "",
            f"An hour of reports to a dead broker (3,600, one a second): {early:.1f} MB after ten minutes,",
            f"{late:.1f} MB after the hour, {waiting} record in flight.",
        ]
    )


def _imports(rounds: int) -> str:
    measured = interpreters.import_ms(rounds)
    times = [f"{value / measured['msgspec']:.1f}" for value in measured.values()]
    return _print(
        [
            "| import, ms of the processor over an empty interpreter | " + " | ".join(measured) + " |",
            "|---|" + "---|" * len(measured),
            "| without Kafka | " + " | ".join(f"{value:.0f}" for value in measured.values()) + " |",
            "| as a multiple of msgspec's own | " + " | ".join(times) + " |",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
