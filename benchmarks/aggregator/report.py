"""The tables, as text that is both printed and put into the page. Pure but for the machine's description."""

from __future__ import annotations

import math
import os
import platform
import subprocess
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks.aggregator.goals import OURS, PEER, Found, at_size, judge
from benchmarks.aggregator.sides import LINGER_0
from tallystream.aggregator import jars

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BEGIN, END = "<!-- results: written by make bench-aggregator -->\n", "<!-- end of results -->\n"
SIDES = (OURS, PEER, LINGER_0)
QUIET_CORES = 0.3
"""So much may other work take, of all cores together, before the page says so."""
ORIGINAL = 60 * 25_000_000
"""The updates of the original's sixty days."""


def tables(found: Found) -> str:
    """Return every table for which something was measured, the goals first."""
    parts = (disturbed(found), goals(found), backlogs(found), latencies(found), growths(found), sizes(found))
    return "\n".join(part for part in parts if part)


def disturbed(found: Found) -> str:
    """Return a warning where the rest of the machine was busy; empty on a quiet one."""
    most = max((one.get("others_cores", 0.0) for one in found.values()), default=0.0)
    if most <= QUIET_CORES:
        return ""
    return (
        f"**Others used up to {most:.1f} of the cores meanwhile: the times say little, a quiet machine is needed.**\n"
    )


def goals(found: Found) -> str:
    """Return what was asked for beside what was measured."""
    rows = []
    for judged in judge(found):
        goal, sign = judged.goal, "≥" if judged.goal.least else "≤"
        bounds = [f"{sign} {_with_unit(bound, goal.unit)}" for bound in (goal.goal, goal.required)]
        measured = "" if judged.measured is None else _with_unit(judged.measured, goal.unit)
        rows.append([goal.what, *bounds, measured, judged.verdict])
    return table(["figure", "goal", "required", "measured", ""], rows)


def backlogs(found: Found) -> str:
    """Return the backlogs, a side a row."""
    rows = [
        [
            f"{one['updates']:,} updates as {one['records']:,} {_FORMS[one['form']]}",
            side,
            *(f"{one['wall_s']:.1f}", f"{one['updates_per_s']:,.0f}", f"{one['cpu_s']:.1f}"),
            *(f"{one['cpu_s_per_million']:.1f}", f"{one['peak_rss_mb']:,.0f}", f"{one['others_cores']:.1f}"),
            _exact(one),
        ]
        for (figure, side), one in _ordered(found)
        if figure.startswith("backlog")
    ]
    heads = ["backlog", "side", "s from launch", "updates/s", "CPU s", "CPU s a million", "peak MB", "others' cores"]
    return table([*heads, "sums"], rows)


def latencies(found: Found) -> str:
    """Return the latencies, a side a row."""
    rows = [
        [
            f"{one['rate']:,.0f} updates/s",
            side + (f", --latency {one['latency']}" if one.get("latency") else ""),
            *(_ms(one[f"p{percent}_ms"]) for percent in (50, 95, 99)),
            f"yes ({one['drain_s']:.1f} s)" if one["keeps_up"] else f"**no** ({one['drain_s']:.1f} s)",
            *(f"{one['cpu_cores']:.2f}", _ms(one["cpu_ms_per_batch"]), f"{one['peak_rss_mb']:,.0f}"),
            *(f"{one['others_cores']:.1f}", _exact(one)),
        ]
        for (figure, side), one in _ordered(found)
        if figure.startswith(("latency", "default", "low"))
    ]
    heads = ["live", "side", "p50 ms", "p95 ms", "p99 ms", "keeps up (last sum after)", "CPU cores"]
    return table([*heads, "CPU ms a batch", "peak MB", "others' cores", "sums"], rows)


def growths(found: Found) -> str:
    """Return what a larger table costs."""
    rows = [
        [
            f"{one['rows']:,}",
            *(str(one["batches"]), f"{one['batch_ms']:,.0f}", f"{one['phases_ms'].get('addBatch', math.nan):,.0f}"),
            *(f"{one['cpu_ms_per_batch']:,.0f}", f"{one['state_mb']:,.1f}", f"{one['checkpoint_mb']:,.1f}"),
            *(f"{one['peak_rss_mb']:,.0f}", f"{one['restart_s']:.1f}", _exact(one)),
        ]
        for (figure, _side), one in _ordered(found)
        if figure.startswith("growth")
    ]
    heads = [
        "table rows",
        "batches",
        "ms a batch",
        "addBatch",
        "CPU ms a batch",
        "state MB",
        "checkpoint MB",
        "peak MB",
    ]
    return table([*heads, "restart s", "sums"], rows)


def sizes(found: Found) -> str:
    """Return the original's size, calculated from what was measured."""
    ours, peer = ("backlog-10m-snapshots", "backlog-100m-snapshots"), ("backlog-2m", "backlog-10m")
    rows = []
    for updates in (100_000_000, ORIGINAL):
        row = [f"{updates:,}"]
        for side, figures in ((OURS, ours), (PEER, peer)):
            if not all((figure, side) in found for figure in figures):
                return ""
            row.append(_duration(at_size(found, side, figures, updates)))
        rows.append(row)
    return table(["updates", f"{OURS}, as snapshot records", f"{PEER}, as single-metric records"], rows)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; empty where there is no row."""
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", *lines]) + "\n" if lines else ""


def machine(command: str, scale: float, rounds: int) -> str:
    """Return what ran, and on what."""
    java = subprocess.run([jars.java(), "-version"], capture_output=True, text=True, check=False).stderr.splitlines()[0]
    memory = psutil.virtual_memory().total / 2**30
    sized = "" if scale == 1 else f" **At {scale:g} of the full size: the figures say nothing about speed.**"
    ran = f"`{command}`, {rounds} round{'' if rounds == 1 else 's'}"
    where = f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB"
    ours = f"CPython {platform.python_version()}, {java.replace(chr(34), '')}, PySpark {version('pyspark')}"
    return f"{ran}; {where};\n{ours}, broker {_broker()},\nKafka Streams {kstreams_version()}.{sized}\n"


def into(page: str, results: str) -> str:
    """Return the page with its results replaced.

    Raises:
        ValueError: it has no place for them.
    """
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return before + BEGIN + "\n" + results + "\n" + END + after


def _broker() -> str:
    return next(path.stem for path in jars.fetch("broker") if path.name.startswith("kafka_"))


def kstreams_version() -> str:
    """Return the version of Kafka Streams that its pom names."""
    from benchmarks.aggregator.kstreams_build import SOURCES

    pom = (SOURCES / "pom.xml").read_text(encoding="utf-8")
    return pom.split("<kafka.version>")[1].split("<")[0]


_FORMS = {"singles": "single-metric records", "snapshots": "snapshot records"}


def _ordered(found: Found) -> Iterable[tuple[tuple[str, str], dict[str, Any]]]:
    return found.items()


def _exact(one: dict[str, Any]) -> str:
    return "exact" if one["exact"] else "**wrong**"


def _with_unit(number: float, unit: str) -> str:
    if math.isinf(number):
        return "behind"
    text = f"{number:.3g}" if number < 1000 else f"{number:,.0f}"
    return text + {"": "", "x": "\N{MULTIPLICATION SIGN}"}.get(unit, f" {unit}")


def _ms(value: float) -> str:
    return "" if math.isnan(value) else f"{value:,.0f}"


def _duration(seconds: float) -> str:
    if seconds < 600:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
