"""Measure what hostile records may cost: python -m benchmarks.limits [--all] [--only TEXT] [--memory MB].

Every input is about 64 KiB of records for one of the parsers. It is applied to a table, published and stored. The table
has the worst inputs, or all of them; the last line says how many were within the limits of docs/performance.md.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from benchmarks.aggregator.report import speed, table
from benchmarks.limits import memory, otlp, snapshots
from benchmarks.limits.measuring import Cost, cost, restore_cost
from benchmarks.speed import work_ms

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.limits.snapshots import Input

WORST = 15
"""How many inputs are shown of each kind of cost, without --all."""

DOCUMENTED = {
    "streams": (120.0, 18.0),
    "OTLP sketch": (80.0, 10.0),
    "points, 1 bound": (65.0, 12.0),
}
"""What docs/performance.md names as beyond the limits, by a text in the name → ms for 64 KiB, bytes for a byte."""

RESTORED = (
    "new lives, living, of one instance",
    "a new instance each",
    "a new part each",
    "31 long tags",
    "timer: new",
)


def inputs() -> Iterator[Input]:
    """Yield every hostile input."""
    yield from snapshots.inputs()
    yield from otlp.inputs()


def measured(only: str) -> Iterator[tuple[str, Cost]]:
    """Yield the cost of each input whose name has the text `only`."""
    chosen = [one for one in inputs() if only in f"{one.parser}: {one.name}" or only in f"rows: {one.name}"]
    for number, one in enumerate(chosen, start=1):
        name = f"{one.parser}: {one.name}"
        print(f"{number} of {len(chosen)}: {name}", file=sys.stderr, flush=True)
        if only in name:
            yield name, cost(one)
        if one.parser == "snapshot" and one.name in RESTORED and only in f"rows: {one.name}":
            yield f"rows: {one.name}", restore_cost(one)


def is_documented(name: str, of: Cost) -> bool:
    """Tell whether docs/performance.md names an input as beyond the limits, and with this cost."""
    known = (limits for text, limits in DOCUMENTED.items() if text in name)
    return any(of.ms_of_64_kib <= ms and of.bytes_of_byte <= made for ms, made in known)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a row for each input. Return 1 if one is beyond the limits that is not documented."""
    parser = argparse.ArgumentParser(prog="benchmarks.limits", description=__doc__)
    parser.add_argument("--all", action="store_true", help="print every input, not only the worst ones")
    parser.add_argument("--only", default="", help="inputs whose name has this text")
    parser.add_argument("--memory", type=int, default=0, metavar="MB", help="also apply so many MB of hostile records")
    options = parser.parse_args(arguments)
    found = list(measured(options.only))
    by_time = sorted(found, key=lambda item: -item[1].ms_of_64_kib)
    by_bytes = sorted(found, key=lambda item: -item[1].bytes_of_byte)
    chosen = found if options.all else [*dict(by_time[:WORST] + by_bytes[:WORST]).items()]
    heads = ["input", "records", "bytes", "ms", "ms per 64 KiB", "output", "state", "memory", "bytes per byte", ""]
    rows = [
        [name, f"{of.records:,}", f"{of.size:,}", f"{of.ms:.1f}", f"{of.ms_of_64_kib:.1f}"]
        + [f"{made / of.size:.1f}" for made in (of.output, of.state, of.memory)]
        + [f"{of.bytes_of_byte:.1f}", "" if of.is_within else "beyond" if is_documented(name, of) else "**beyond**"]
        for name, of in chosen
    ]
    print(speed([work_ms()]))
    print(table(heads, rows))
    beyond = [is_documented(name, of) for name, of in found if not of.is_within]
    print(
        f"\n{len(found)} inputs, {len(beyond)} beyond the limits, {sum(beyond)} of them as documented; "
        f"worst: {by_time[0][1].ms_of_64_kib:.1f} ms per 64 KiB "
        f"({by_time[0][0]}), {by_bytes[0][1].bytes_of_byte:.1f} bytes per byte ({by_bytes[0][0]})"
    )
    if options.memory:
        print(memory.grow(options.memory))
    return 0 if all(beyond) else 1


if __name__ == "__main__":
    sys.exit(main())
