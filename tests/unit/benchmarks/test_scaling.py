"""The sizing of fleets, from costs that were measured."""

from __future__ import annotations

import pytest

from benchmarks.scaling.reporting import Found, Stage
from benchmarks.scaling.sizing import costs, sized, tables


def _found(instances: int, shards: int = 1, **more: float) -> Found:
    figures = {"loaded_s": 9.0, "others_cores": 0.0, "batch_ms": 200.0, "drain_s": 0.5, "state_mb": 1.0, **more}
    return Found(
        stage=Stage(instances, shards),
        rows=instances * 100,
        records_per_s=instances / 10,
        record_bytes=5000.0,
        batches=100,
        exact=True,
        **figures,
    )


SMALL = _found(100, cores=0.5, peak_mb=1004.0, checkpoint_mb=1.0, restart_s=7.0)
LARGE = _found(10_000, cores=1.0, peak_mb=1400.0, checkpoint_mb=100.0, restart_s=17.0)
SHARDED = _found(10_000, 2, cores=1.4, peak_mb=1900.0, checkpoint_mb=110.0, restart_s=15.0)


def test_costs_are_those_of_a_million_rows_or_updates() -> None:
    """What any aggregator takes is kept apart from what its rows take; tables of several shards are left out."""
    cost = costs([SMALL, SHARDED, LARGE])
    assert cost.memory_mb == pytest.approx(400)
    assert cost.idle_mb == pytest.approx(1000)
    assert cost.checkpoint_mb == pytest.approx(100)
    assert (cost.start_s, cost.update_bytes) == (7.0, 50.0)
    assert cost.restart_s == pytest.approx(10 / 0.99)
    assert cost.core_s_per_million_updates == pytest.approx(10)


def test_a_fleet_s_size_is_its_rows_and_updates_times_the_costs() -> None:
    """A hundred million rows need fifty shards of two million, each restarts with its own rows, and a driver."""
    fleet, rows, records, mb, shards, cores, memory, checkpoint, restart = sized(costs([SMALL, LARGE]), 10**6, 100, 60)
    assert (fleet, rows) == ("1,000,000 of 100 metrics, every 60 s", "100 M")
    assert (records, mb, shards, cores) == ("16,667", "83.3", "50", "16.7")
    assert (memory, checkpoint, restart) == ("91.0", "10.0", "27")


def test_the_tables_say_what_was_wrong() -> None:
    """A stage whose sums were wrong says so."""
    assert "**wrong**" in tables([SMALL, LARGE._replace(exact=False)], costs([SMALL, LARGE]))
    assert "**wrong**" not in tables([SMALL, LARGE], costs([SMALL, LARGE]))
