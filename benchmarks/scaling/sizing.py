"""Estimates for larger fleets, calculated from the measured stages. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from benchmarks.aggregator.goals import COUNTERS, OURS, SCALING
from benchmarks.aggregator.report import disturbed, goals, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.aggregator.goals import Found

MB = 1e6
SHARD_ROWS = 10_000_000
"""The maximum rows of a shard: the largest number that is measured here."""
SHARD_CORES = 0.5
"""The maximum load of a shard. It is one task on one core; at a full core, sums are late."""
FLEETS = ((1_000, 50, 10), (10_000, 100, 10), (100_000, 100, 100), (100_000, 100, 30), (1_000_000, 100, 60))
"""(instances, metrics of each instance, seconds between two reports)"""


class Costs(NamedTuple):
    """Costs for each million rows and each million updates. `rows` is the largest measured number of rows.

    `idle_mb` and `start_s` are the costs of an empty table, `least_cores` the cores with few records. An update
    takes `update_bytes` on `metrics` and `table_bytes` on `metrics-table`.
    """

    rows: int
    idle_mb: float
    memory_mb: float
    checkpoint_mb: float
    start_s: float
    restart_s: float
    restored_s: float
    least_cores: float
    core_s_per_million_updates: float
    update_bytes: float
    table_bytes: float


def costs(found: Found) -> Costs | None:
    """Return the costs from lines through the stages with only counters; None if fewer than two were measured.

    The lines go through the stages with at least a million rows, if there are two of them.
    """
    stages = [found[name, OURS] for name in COUNTERS if (name, OURS) in found]
    if len(stages) < 2:
        return None
    small, large = stages[0], stages[-1]
    large_ones = [one for one in stages if one["rows"] >= 1_000_000]
    fitted = large_ones if len(large_ones) > 1 else stages
    memory, idle = _line(fitted, "peak_mb")
    restart, start = _line(fitted, "restart_s")
    updates = large["rows"] / large["lives"]
    return Costs(
        rows=large["rows"],
        idle_mb=idle,
        memory_mb=memory,
        checkpoint_mb=_line(fitted, "checkpoint_mb")[0],
        start_s=start,
        restart_s=restart,
        restored_s=_line(fitted, "restored_s")[0],
        least_cores=small["cores"],
        core_s_per_million_updates=large["cpu_s_per_million"],
        update_bytes=large["record_bytes"] / updates,
        table_bytes=large["table_record_bytes"] / updates,
    )


def _line(stages: Sequence[dict[str, Any]], field: str) -> tuple[float, float]:
    """Return the slope for a million rows, and the value at no rows, of the line that fits best.

    Both are NaN if fewer than two stages have the field.
    """
    points = [(one["rows"] / 1e6, one[field]) for one in stages if not math.isnan(one[field])]
    if len(points) < 2:
        return math.nan, math.nan
    slope, at_none = np.polyfit([x for x, _ in points], [y for _, y in points], 1)
    return float(slope), float(at_none)


def sized(cost: Costs, instances: int, metrics: int, every_s: float) -> list[str]:
    """Return the row of a fleet in the table of estimates."""
    rows, updates = instances * metrics, instances * metrics / every_s
    cores = updates * cost.core_s_per_million_updates / 1e6
    shards = max(1, math.ceil(rows / SHARD_ROWS), math.ceil(cores / SHARD_CORES))
    processes = 1 if shards == 1 else shards + 2  # an executor for each shard and for the combiner, and the driver
    return [
        f"{instances:,} of {metrics} metrics, every {every_s:g} s",
        f"{rows / 1e6:,.2g} M" if rows < 1e6 else f"{rows / 1e6:,.0f} M",
        f"{instances / every_s:,.0f}",
        f"{updates * cost.update_bytes / MB:,.1f}",
        f"{updates * cost.table_bytes / MB:,.1f}",
        f"{rows * cost.table_bytes / 1e9:,.1f}",
        str(shards),
        f"{max(cost.least_cores, cores):,.1f}",
        f"{(processes * cost.idle_mb + rows / 1e6 * cost.memory_mb) / 1000:,.1f}",
        f"{rows / 1e6 * cost.checkpoint_mb / 1000:,.1f}",
        f"{cost.start_s + rows / shards / 1e6 * cost.restart_s:,.0f}",
        "extrapolated" if rows > cost.rows else "",
    ]


def tables(found: Found) -> str:
    """Return the tables of the measured stages, the costs, and the estimates for other fleets."""
    parts = [disturbed(found), goals(SCALING, found), _stages(found), _storage(found)]
    cost = costs(found)
    if cost is not None:
        heads = ["fleet", "rows", "records/s", "MB/s to metrics", "MB/s to metrics-table", "GB of metrics-table"]
        heads += ["shards", "cores", "GB memory", "GB checkpoint", "restart s", ""]
        parts += [_costs(cost), table(heads, [sized(cost, *fleet) for fleet in FLEETS])]
    return "\n".join(part for part in parts if part)


def _stages(found: Found) -> str:
    heads = ["stage", "rows", "records/s", "cores", "CPU s a million updates", "p50 ms", "p99 ms"]
    heads += ["longest gap ms", "last sum after s", "others' cores", "sums"]
    rows = [
        [
            *(name, f"{one['rows']:,}", f"{one['records_per_s']:,.0f}", f"{one['cores']:.2f}"),
            f"{one['cpu_s_per_million']:.1f}",
            *(f"{one[field]:,.0f}" for field in ("p50_ms", "p99_ms", "gap_ms")),
            *(f"{one['drain_s']:.1f}", f"{one['others_cores']:.2f}", "exact" if one["exact"] else "**wrong**"),
        ]
        for (name, _), one in found.items()
    ]
    return table(heads, rows)


def _storage(found: Found) -> str:
    heads = ["stage", "peak MB", "checkpoint MB", "MB/s to metrics", "MB/s to metrics-table"]
    heads += ["s from launch to the first sums", "restart s", "restart without its checkpoint s"]
    rows = [
        [
            *(name, f"{one['peak_mb']:,.0f}", f"{one['checkpoint_mb']:,.1f}"),
            *(f"{one['records_per_s'] * one[field] / MB:.1f}" for field in ("record_bytes", "table_record_bytes")),
            *(f"{one[field]:.1f}" for field in ("loaded_s", "restart_s", "restored_s")),
        ]
        for (name, _), one in found.items()
    ]
    return table(heads, rows)


def _costs(cost: Costs) -> str:
    rows = [
        ["MB of memory", f"{cost.memory_mb:,.0f}", f"a million rows, beside {cost.idle_mb:,.0f} MB"],
        ["MB of checkpoint", f"{cost.checkpoint_mb:,.0f}", "a million rows"],
        [
            "s of a restart",
            f"{cost.restart_s:,.1f}",
            f"a million rows of a shard, beside {cost.start_s:.1f} s",
        ],
        ["s more without the checkpoint", f"{cost.restored_s:,.1f}", "a million rows"],
        ["core seconds", f"{cost.core_s_per_million_updates:,.1f}", "a million updates"],
        [
            "bytes to metrics-table",
            f"{cost.table_bytes:,.0f}",
            f"an update, which is {cost.update_bytes:,.0f} on metrics",
        ],
    ]
    return table(["", "", "for"], rows)
