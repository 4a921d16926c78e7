"""The sizing of fleets from measured costs, and the load of fleets whose lives have retired."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

from benchmarks.aggregator.goals import OURS
from benchmarks.aggregator.load import Fleet
from benchmarks.scaling.retiring import APART_MS, GROUP, RETIRE_AFTER_H, Group, groups
from benchmarks.scaling.sizing import costs, sized, tables
from tallystream.ulid import new_ulid
from tallystream_aggregator.table import Record, State, Table, TableSettings
from tallystream_aggregator.table.rows import ShardRow
from tallystream_aggregator.table.table import run_batch


def stage(lives: int, *, exact: bool = True, **more: float) -> dict[str, Any]:
    """Return the result of a stage with this many instances of 100 metrics."""
    seconds = {"loaded_s": 9.0, "drain_s": 0.5, "rebuild_s": lives / 1e4, "rebuilt_s": 9.0}
    batches = {"batch_ms": 200.0, "cpu_ms_per_batch": 90.0, "slowest_ms": 400.0, "cpu_s_per_million": 10.0}
    sizes = {"state_mb": 1.0, "record_bytes": 5000.0, "table_record_bytes": 2000.0, "disk": 0, "others_cores": 0.0}
    rates = {"rows": lives * 100, "lives": lives, "records_per_s": lives / 10}
    return {**seconds, **batches, **sizes, **rates, **more, "exact": exact}


SMALL = stage(100, cores=0.5, peak_rss_mb=1090.0, checkpoint_mb=1.0, restart_s=7.0)
MILLION = stage(10_000, cores=1.0, peak_rss_mb=1400.0, checkpoint_mb=100.0, restart_s=17.0)
SHARDED = stage(10_000, cores=1.4, peak_rss_mb=1900.0, checkpoint_mb=110.0, restart_s=15.0)
LARGE = stage(100_000, cores=1.0, peak_rss_mb=5000.0, checkpoint_mb=1000.0, restart_s=107.0)
FOUND = {("rows-10k", OURS): SMALL, ("rows-1m", OURS): MILLION, ("rows-1m-2-shards", OURS): SHARDED}
WITH_LARGE = {**FOUND, ("rows-10m", OURS): LARGE}


def test_costs_are_those_of_a_million_rows_or_updates() -> None:
    """The cost of an aggregator without rows is separate. Tables of several shards are left out."""
    cost = costs(WITH_LARGE)
    assert cost is not None
    assert cost.rows == 10_000_000
    assert (cost.memory_mb, cost.idle_mb) == (pytest.approx(400), pytest.approx(1000))
    assert (cost.restart_s, cost.start_s) == (pytest.approx(10), pytest.approx(7))
    assert cost.checkpoint_mb == pytest.approx(100)
    assert (cost.update_bytes, cost.table_bytes, cost.core_s_per_million_updates) == (50, 20, 10)


def test_two_stages_are_enough_for_costs() -> None:
    """With two stages the line goes through both. With one there are no costs."""
    cost = costs(FOUND)
    assert cost is not None
    assert cost.memory_mb == pytest.approx(310 / 0.99)
    assert costs({("rows-1m", OURS): MILLION}) is None


def test_a_failed_restart_has_no_cost() -> None:
    """The other costs of its stage are still used."""
    cost = costs({**FOUND, ("rows-10m", OURS): {**LARGE, "restart_s": math.nan, "exact": False}})
    assert cost is not None
    assert math.isnan(cost.restart_s)
    assert cost.memory_mb == pytest.approx(400)


def test_a_fleet_s_size_is_its_rows_and_updates_times_the_costs() -> None:
    """A hundred million rows need 34 shards for their updates, and a driver. Each shard restarts with its own rows."""
    cost = costs(WITH_LARGE)
    assert cost is not None
    fleet, rows, *rates, shards, cores, memory, checkpoint, restart, how = sized(cost, 10**6, 100, 60)
    assert (fleet, rows) == ("1,000,000 of 100 metrics, every 60 s", "100 M")
    assert rates == ["16,667", "83.3", "33.3", "2.0"]
    assert (shards, cores, memory, checkpoint, restart) == ("34", "16.7", "75.0", "10.0", "36")
    assert how == "extrapolated"
    assert not sized(cost, 100_000, 100, 100)[-1]


def test_the_tables_mark_a_stage_with_wrong_sums() -> None:
    """Such a stage meets no bound."""
    assert "**wrong**" not in tables(WITH_LARGE)
    wrong = tables({**WITH_LARGE, ("rows-10m", OURS): {**LARGE, "exact": False}})
    assert wrong.count("**wrong**") == 1
    assert "| no | **limit missed** |" in wrong
    assert "| fleet |" not in tables({("rows-1m", OURS): MILLION})


def test_each_group_retires_when_the_next_one_reports() -> None:
    """At most two groups are in memory. At the end all of them are on disk, and the sums include all of them."""
    hour_ms, now_ms = 3_600_000, 1_700_000_000_000
    table = Table(State(), TableSettings(retire_after_ms=int(RETIRE_AFTER_H * hour_ms)))
    lives, metrics, offset = 2 * GROUP + 5, 2, 0
    sums, published = np.zeros(metrics, np.int64), dict[str, int]()
    living = Group(now_ms, [(b"living", snapshot(now_ms))], np.array([0, 0]))
    for group in [*groups(lives, metrics, now_ms), living]:
        records = [
            Record("metrics", 0, number, group.at_ms, *record) for number, record in enumerate(group.records, offset)
        ]
        offset += len(records)
        changes = run_batch(table, records, now_ms=group.at_ms)
        published |= {one.metric[1]: json.loads(one.value(epoch=1, batch=1))["count"] for one in changes.totals}
        assert not changes.dead
        (shard,) = (one.row for one in changes.rows if isinstance(one.row, ShardRow))
        assert shard.lives <= 2 * GROUP
        sums += group.sums
    assert (shard.disk, shard.lives) == (lives, 1)
    assert [published[name] for name in Fleet(metrics=metrics).names] == sums.tolist()
    assert RETIRE_AFTER_H * hour_ms < APART_MS


def snapshot(now_ms: int) -> bytes:
    """Return a snapshot without metrics of a living instance."""
    head = {"v": 1, "app": "bench", "life": new_ulid(now_ms), "part": 0, "seq": 1, "ts": now_ms, "every_ms": 1000}
    return json.dumps({**head, "final": False, "metrics": []}).encode()
