"""The tables as Markdown, for the output and for the page in docs/. Only `machine` is not pure."""

from __future__ import annotations

import math
import os
import platform
import statistics
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.aggregator.goals import AGGREGATOR, OURS, PEER, Found, Goal, at_size, evaluate
from benchmarks.aggregator.sides import KSTREAMS
from tallystream_aggregator import java
from tallystream_cli.servers import jars

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BEGIN, END = "<!-- results: written by the benchmark -->\n", "<!-- end of results -->\n"
QUIET_CORES = 0.3
"""The cores that other programs may use without a warning on the page."""
SIXTY_DAYS = 60 * 25_000_000
"""The updates of sixty days at 25 million a day."""


def tables(found: Found) -> str:
    """Return the tables of everything that was measured. The goals come first."""
    parts = (disturbed(found), goals(AGGREGATOR, found), backlogs(found), latencies(found), loads(found), sizes(found))
    return "\n".join(part for part in parts if part)


def disturbed(found: Found) -> str:
    """Return a warning if other programs kept the machine busy, else an empty text."""
    most = max((one.get("others_cores", 0.0) for one in found.values()), default=0.0)
    if most <= QUIET_CORES:
        return ""
    return f"**Other programs used up to {most:.1f} cores: the times say little. Measure again on a quiet machine.**\n"


def goals(listed: Sequence[Goal], found: Found) -> str:
    """Return the goals with the measured values."""
    rows = []
    for evaluation in evaluate(listed, found):
        goal, sign = evaluation.goal, "≥" if evaluation.goal.at_least else "≤"
        bounds = [
            "" if bound is None else f"{sign} {_with_unit(bound, goal.unit)}" for bound in (goal.limit, goal.goal)
        ]
        measured = "" if evaluation.measured is None else _with_unit(evaluation.measured, goal.unit)
        rows.append([goal.what, *bounds, measured, evaluation.status])
    return table(["figure", "limit", "goal", "measured", ""], rows)


def backlogs(found: Found) -> str:
    """Return the backlogs, with a row for each side."""
    rows = [
        [
            f"{one['updates']:,} updates as {one['records']:,} {_FORMS[one['form']]}",
            side,
            *(f"{one['wall_s']:.1f}", f"{one['updates_per_s']:,.0f}", f"{one['cpu_s']:.1f}"),
            *(f"{one['cpu_s_per_million']:.1f}", f"{one['peak_mb']:,.0f}", f"{one['others_cores']:.1f}"),
            _exact(one),
        ]
        for (figure, side), one in found.items()
        if figure.startswith("backlog")
    ]
    heads = ["backlog", "side", "s from launch", "updates/s", "CPU s", "CPU s a million", "peak MB", "others' cores"]
    return table([*heads, "sums"], rows)


def latencies(found: Found) -> str:
    """Return the latencies, with a row for each side."""
    rows = [
        [
            f"{one['rate']:,.0f} updates/s",
            side + (f", --latency {one['latency']}" if one.get("latency") else "") + _BUSY * one.get("busy", False),
            *(_ms(one[field]) for field in ("p50_ms", "p95_ms", "p99_ms", "gap_ms")),
            f"yes ({one['drain_s']:.1f} s)" if one["keeps_up"] else f"**no** ({one['drain_s']:.1f} s)",
            *(f"{one['cpu_cores']:.2f}", f"{one['peak_mb']:,.0f}", f"{one['others_cores']:.1f}", _exact(one)),
        ]
        for (figure, side), one in found.items()
        if figure.startswith(("latency", "steady", "default"))
    ]
    heads = ["live", "side", "p50 ms", "p95 ms", "p99 ms", "longest gap ms", "keeps up (last sum after)", "CPU cores"]
    return table([*heads, "peak MB", "others' cores", "sums"], rows)


def loads(found: Found) -> str:
    """Return the cost of the table alone, by load."""
    rows = [
        [load, *(f"{cost[part]:.2f}" for part in _PARTS)]
        for (figure, _side), one in found.items()
        if figure == "table"
        for load, cost in one["loads"].items()
    ]
    return table(["the table alone, µs an update", *_PARTS.values()], rows)


def sizes(found: Found) -> str:
    """Return the time for 100 million updates and those of sixty days, calculated from the measured backlogs."""
    ours, peer = ("backlog-10m-snapshots", "backlog-100m-snapshots"), ("backlog-2m", "backlog-10m")
    rows = []
    for updates in (100_000_000, SIXTY_DAYS):
        row = [f"{updates:,}"]
        for side, figures in ((OURS, ours), (PEER, peer)):
            if not all((figure, side) in found for figure in figures):
                return ""
            row.append(_duration(at_size(found, side, figures, updates)))
        rows.append(row)
    return table(["updates", f"{OURS}, as snapshot records", f"{PEER}, as single-metric records"], rows)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; an empty text if it has no row."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *lines]) + "\n" if lines else ""


def machine(command: str, scale: float, rounds: int, found: Found) -> str:
    """Return the command, the date, the machine, the versions, and the speed of the machine."""
    shown = subprocess.run([java.launcher(), "-version"], capture_output=True, text=True, check=False).stderr
    memory = psutil.virtual_memory().total / 2**30
    sized = "" if scale == 1 else f" **At {scale:g} of the full size: the figures say nothing about speed.**"
    ran = f"`{command}`, {rounds} round{'' if rounds == 1 else 's'}, {datetime.now(UTC):%Y-%m-%d}"
    where = f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB"
    of_java = shown.splitlines()[0].replace('"', "")
    ours = f"CPython {platform.python_version()}, {of_java}, PySpark {version('pyspark')}"
    text = f"{ran}; {where};\n{ours}, broker {_broker()},\nKafka Streams {kstreams_version()}.{sized}\n"
    return text + speed([one["work_ms"] for one in found.values() if "work_ms" in one])


def speed(work_ms: Sequence[float]) -> str:
    """Return how long a fixed piece of work takes, to compare machines; an empty text if it was not measured."""
    if not work_ms:
        return ""
    least, middle, most = min(work_ms), statistics.median(work_ms), max(work_ms)
    return (
        f"The fixed piece of work of `benchmarks/speed.py` takes {middle:.1f} ms of processor time on this machine "
        f"(measured before each figure: {least:.1f} to {most:.1f}).\n"
    )


def into(page: str, results: str) -> str:
    """Return the page with the new results.

    Raises:
        ValueError: it does not have exactly one pair of result marks.
    """
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "\n" + results + "\n" + END + after


def _broker() -> str:
    return next(path.stem for path in jars.fetch("broker") if path.name.startswith("kafka_"))


def kstreams_version() -> str:
    """Return the version of Kafka Streams in pom.xml."""
    pom = (KSTREAMS / "pom.xml").read_text(encoding="utf-8")
    return pom.split("<kafka.version>")[1].split("<")[0]


_PARTS = {"apply": "decode and apply", "changes": "changes", "rows": "rows", "state": "state", "total": "total"}
_PARTS |= {"worst": "worst step"}
_BUSY = ", beside a busy loop on each core"
_FORMS = {"singles": "single-metric records", "snapshots": "snapshot records"}


def _exact(one: dict[str, Any]) -> str:
    return "exact" if one["exact"] else "**wrong**"


def _with_unit(number: float, unit: str) -> str:
    if math.isinf(number):
        return "no"  # the side falls behind, or a sum is wrong
    text = f"{number:.3g}" if number < 1000 else f"{number:,.0f}"
    return text + {"": "", "x": "\N{MULTIPLICATION SIGN}"}.get(unit, f" {unit}")


def _ms(value: float) -> str:
    return "" if math.isnan(value) else f"{value:,.0f}"


def _duration(seconds: float) -> str:
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
