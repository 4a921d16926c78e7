"""What larger fleets take, calculated from what smaller ones took. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.aggregator.report import table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.scaling.reporting import Found

MB = 1e6
SHARD_ROWS = 2_000_000
"""Rows of a shard: some gigabytes of its worker's memory."""
SHARD_CORES = 0.5
"""How busy a shard is at most, which is one task and so one core: at its limit a batch takes seconds."""
FLEETS = ((1_000, 50, 10), (10_000, 100, 10), (100_000, 100, 30), (1_000_000, 100, 60))
"""(instances, metrics of each, seconds between two reports)"""


class Costs(NamedTuple):
    """What grows with the rows, for a million of them, and with the updates.

    `idle_mb` is what any aggregator takes, `batch_cores` what batches that follow each other take, however small.
    """

    idle_mb: float
    batch_cores: float
    memory_mb: float
    checkpoint_mb: float
    restart_s: float
    start_s: float
    core_s_per_million_updates: float
    update_bytes: float


def costs(found: Sequence[Found]) -> Costs:
    """Return the costs by the line through the largest and the smallest stage of one shard."""
    small, *_, large = sorted((one for one in found if one.stage.shards == 1), key=lambda one: one.rows)
    more = (large.rows - small.rows) / 1e6
    metrics = large.rows / large.stage.instances
    return Costs(
        idle_mb=small.peak_mb - (large.peak_mb - small.peak_mb) / more * small.rows / 1e6,
        batch_cores=small.cores,
        memory_mb=(large.peak_mb - small.peak_mb) / more,
        checkpoint_mb=(large.checkpoint_mb - small.checkpoint_mb) / more,
        restart_s=(large.restart_s - small.restart_s) / more,
        start_s=small.restart_s,
        core_s_per_million_updates=large.cores / (large.records_per_s * metrics) * 1e6,
        update_bytes=large.record_bytes / metrics,
    )


def sized(cost: Costs, instances: int, metrics: int, every_s: float) -> list[str]:
    """Return a row of the table of fleets."""
    rows, updates = instances * metrics, instances * metrics / every_s
    cores = updates * cost.core_s_per_million_updates / 1e6
    shards = max(1, math.ceil(rows / SHARD_ROWS), math.ceil(cores / SHARD_CORES))
    processes = 1 if shards == 1 else shards + 1  # an executor for each shard, and the driver
    return [
        f"{instances:,} of {metrics} metrics, every {every_s:g} s",
        f"{rows / 1e6:,.2g} M" if rows < 1e6 else f"{rows / 1e6:,.0f} M",
        f"{instances / every_s:,.0f}",
        f"{updates * cost.update_bytes / MB:,.1f}",
        str(shards),
        f"{max(cost.batch_cores, cores):,.1f}",
        f"{(processes * cost.idle_mb + rows / 1e6 * cost.memory_mb) / 1000:,.1f}",
        f"{rows / 1e6 * cost.checkpoint_mb / 1000:,.1f}",
        f"{cost.start_s + rows / shards / 1e6 * cost.restart_s:,.0f}",
    ]


def tables(found: Sequence[Found], cost: Costs) -> str:
    """Return what was measured, and what it says of other fleets."""
    measured = [
        [
            *(
                f"{one.rows:,}",
                str(one.stage.shards),
                f"{one.records_per_s:,.0f}",
                f"{one.records_per_s * one.record_bytes / MB:.1f}",
            ),
            *(
                f"{one.cores:.2f}",
                f"{one.batch_ms:,.0f}",
                f"{one.drain_s:.1f}",
                f"{one.peak_mb:,.0f}",
                f"{one.state_mb:,.1f}",
            ),
            *(f"{one.checkpoint_mb:,.1f}", f"{one.loaded_s:.1f}", f"{one.restart_s:.1f}", f"{one.others_cores:.2f}"),
            "exact" if one.exact else "**wrong**",
        ]
        for one in found
    ]
    heads = ["rows", "shards", "records/s", "MB/s", "cores", "ms a batch", "last sum after s", "peak MB", "state MB"]
    heads += ["checkpoint MB", "s from launch to the first sums", "restart s", "others' cores", "sums"]
    fleets = ["fleet", "rows", "records/s", "MB/s in", "shards", "cores", "GB memory", "GB checkpoint", "restart s"]
    each = [
        ["MB of memory", f"{cost.memory_mb:,.0f}", "a million rows, beside " + f"{cost.idle_mb:,.0f} MB for none"],
        ["MB of checkpoint", f"{cost.checkpoint_mb:,.0f}", "a million rows"],
        [
            "s of a restart",
            f"{cost.restart_s:,.1f}",
            "a million rows of a shard, beside " + f"{cost.start_s:.1f} s for none",
        ],
        ["core seconds", f"{cost.core_s_per_million_updates:,.1f}", "a million updates"],
    ]
    return "\n".join(
        [table(heads, measured), table(["", "", "for"], each), table(fleets, [sized(cost, *fleet) for fleet in FLEETS])]
    )
