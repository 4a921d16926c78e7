"""The sizing of fleets from measured costs."""

from __future__ import annotations

import math
from typing import Any

import pytest

from benchmarks.aggregator.goals import OURS
from benchmarks.scaling.sizing import costs, sized, tables


def stage(lives: int, *, exact: bool = True, **more: float) -> dict[str, Any]:
    """Return the result of a stage with this many instances of 100 metrics."""
    seconds = {"loaded_s": 9.0, "drain_s": 0.5, "restored_s": lives / 1e4, "p50_ms": 9.0, "p99_ms": 20.0}
    sizes = {"record_bytes": 5000.0, "table_record_bytes": 2000.0, "table_update_bytes": 20.0, "others_cores": 0.0}
    rates = {
        "rows": lives * 100,
        "lives": lives,
        "records_per_s": lives / 10,
        "gap_ms": 90.0,
        "cpu_s_per_million": 10.0,
    }
    return {**seconds, **sizes, **rates, **more, "exact": exact}


SMALL = stage(100, cores=0.5, peak_mb=1090.0, checkpoint_mb=1.0, restart_s=7.0)
MILLION = stage(10_000, cores=1.0, peak_mb=1400.0, checkpoint_mb=100.0, restart_s=17.0)
SHARDED = stage(10_000, cores=1.4, peak_mb=1900.0, checkpoint_mb=110.0, restart_s=15.0)
LARGE = stage(100_000, cores=1.0, peak_mb=5000.0, checkpoint_mb=1000.0, restart_s=107.0)
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
    assert (shards, cores, memory, checkpoint, restart) == ("34", "16.7", "76.0", "10.0", "36")
    assert how == "extrapolated"
    assert not sized(cost, 100_000, 100, 100)[-1]


def test_the_tables_mark_a_stage_with_wrong_sums() -> None:
    """Such a stage meets no bound."""
    assert "**wrong**" not in tables(WITH_LARGE)
    wrong = tables({**WITH_LARGE, ("rows-10m", OURS): {**LARGE, "exact": False}})
    assert wrong.count("**wrong**") == 1
    assert "| no | **limit missed** |" in wrong
    assert "| fleet |" not in tables({("rows-1m", OURS): MILLION})
