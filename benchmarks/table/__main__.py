"""Measure the cost of an update in the table, in one process without Spark: python -m benchmarks.table [--only LOAD,…].

Each step has 500 snapshots of 100 metrics, one from each instance. It is decoded and applied; the records to publish
are encoded; the state is stored in memory. Each load has a new table.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from benchmarks.aggregator.report import speed, table
from benchmarks.speed import work_ms
from benchmarks.table.loads import ALL
from benchmarks.table.measuring import measure

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the loads and print a row for each. Return 1 if a sum was wrong."""
    parser = argparse.ArgumentParser(prog="benchmarks.table", description=__doc__)
    parser.add_argument("--only", default=",".join(ALL), help=f"loads: {', '.join(ALL)}")
    parser.add_argument("--records", type=int, default=500, help="records of a step")
    parser.add_argument("--steps", type=int, help="steps of each load; the first two are not measured")
    options = parser.parse_args(arguments)
    unknown = set(options.only.split(",")) - set(ALL)
    if unknown:
        parser.error(f"--only {','.join(unknown)}: give one or more of {', '.join(ALL)}")
    rows, exact = [], True
    for name in options.only.split(","):
        load = ALL[name]
        cost = measure(load.make(options.records, options.steps or load.steps))
        exact &= cost.exact
        rows.append([name, *(f"{value:.2f}" for value in cost[1:-1]), "exact" if cost.exact else "**wrong**"])
    heads = ["load", "decode and apply", "changes()", "rows", "state", "total", "worst step", "sums"]
    print(speed([work_ms()]))
    print("µs of processor time for each update:\n\n" + table(heads, rows))
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
