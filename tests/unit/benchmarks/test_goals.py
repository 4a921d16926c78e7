"""Goals, results and tables of the aggregator's benchmark: from numbers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.aggregator import report
from benchmarks.aggregator.goals import AGGREGATOR, OURS, PEER, SCALING, at_size, evaluate
from benchmarks.aggregator.results import Result, Results

if TYPE_CHECKING:
    from pathlib import Path


def of_backlog(updates: int, wall_s: float, **more: Any) -> dict[str, Any]:
    """Return what a backlog's measurement has."""
    plain = {"updates": updates, "records": updates, "form": "singles", "wall_s": wall_s, "exact": True}
    plain |= {"updates_per_s": updates / wall_s, "cpu_s": 1.0, "cpu_s_per_million": 8.0, "peak_mb": 600.0}
    return {**plain, "others_cores": 0.0, **more}


def of_latency(p50_ms: float, p99_ms: float, *, keeps_up: bool = True) -> dict[str, Any]:
    """Return what a live measurement has."""
    plain = {"rate": 10_000, "p50_ms": p50_ms, "p95_ms": p99_ms, "p99_ms": p99_ms, "drain_s": 0.5, "cpu_cores": 1.0}
    plain |= {"gap_ms": 90.0}
    return {**plain, "keeps_up": keeps_up, "peak_mb": 1.0, "others_cores": 0.0, "exact": True}


FOUND = {
    ("backlog-2m", OURS): of_backlog(2_000_000, 25.0),
    ("backlog-2m", PEER): of_backlog(2_000_000, 100.0),
    ("backlog-10m", OURS): of_backlog(10_000_000, 50.0),
    ("backlog-10m", PEER): of_backlog(10_000_000, 460.0, cpu_s_per_million=40.0),
    ("latency-2000", OURS): of_latency(15, 600),
    ("latency-2000", PEER): of_latency(300, 500),
    ("latency-10000", OURS): of_latency(200, 240),
}


def verdict(found: dict[tuple[str, str], dict[str, Any]], what: str) -> tuple[float | None, str]:
    """Return what was measured for the one goal whose name begins so, and the verdict."""
    (evaluation,) = [one for one in evaluate(AGGREGATOR + SCALING, found) if one.goal.what.startswith(what)]
    return evaluation.measured, evaluation.status


def test_a_figure_is_judged_against_both_bounds() -> None:
    """Both are met, the limit alone, none, and a figure that was not measured."""
    met = {**FOUND, ("backlog-10m", OURS): of_backlog(10_000_000, 23.0)}
    assert verdict(met, "backlog of 10 M") == (20.0, "limit met, goal met")
    assert verdict(FOUND, "backlog of 2 M") == (4.0, "limit met, goal missed")
    assert verdict({**FOUND, ("backlog-2m", OURS): of_backlog(10, 50.0)}, "backlog of 2 M")[1] == "**limit missed**"
    assert verdict(FOUND, "memory with 1 M") == (None, "not measured")


def test_a_latency_is_a_share_of_the_peers() -> None:
    """The latency of the same run: milliseconds of two machines can't be compared."""
    assert verdict(FOUND, "2,000 updates/s, low: p50 as") == (0.05, "limit met, goal met")
    assert verdict(FOUND, "2,000 updates/s, low: p99 as") == (1.2, "**limit missed**")


def test_a_side_that_falls_behind_meets_no_bound() -> None:
    """Its latency as measured may look good: it is no latency that lasts."""
    assert verdict(FOUND, "2,000 updates/s, low: p50 as")[1] == "limit met, goal met"
    behind = {**FOUND, ("latency-2000", OURS): of_latency(15, 600, keeps_up=False)}
    assert verdict(behind, "2,000 updates/s, low: p50 as")[1] == "**limit missed**"
    assert "| no | **limit missed** |" in report.goals(AGGREGATOR, behind)


def test_a_wrong_sum_meets_no_bound() -> None:
    """A restart that is fast and wrong is none."""
    assert verdict({("rows-10k", OURS): {"restart_s": 1.0, "exact": True}}, "10,000 rows")[1] == "limit met, goal met"
    assert verdict({("rows-10k", OURS): {"restart_s": 1.0, "exact": False}}, "10,000 rows")[1] == "**limit missed**"


def test_an_extrapolation_keeps_the_launch_apart() -> None:
    """Of 100 s for 2 M and 460 s for 10 M, 10 s are the launch and 45 s a million's."""
    assert at_size(FOUND, PEER, ("backlog-2m", "backlog-10m"), 100_000_000) == pytest.approx(10 + 4500)


def test_a_run_goes_on_with_what_was_measured(tmp_path: Path) -> None:
    """The file of results is taken over only where that is asked for."""
    path = tmp_path / "results.jsonl"
    Results(path).add(Result("f", "s", 1, {"wall_s": 1.5}))
    again = Results(path, resume=True)
    assert again.has("f", "s", 1)
    assert not again.has("f", "s", 2)
    assert again.medians() == {("f", "s"): {"wall_s": 1.5}}
    assert not Results(path).all


def test_a_machine_with_other_work_is_said_to_be_one() -> None:
    """From a third of a core on the figures come with a warning; on a quiet machine there is none."""
    assert "1.4 cores" in report.tables({("backlog-2m", OURS): of_backlog(10, 1.0, others_cores=1.4)})
    assert "Other programs used" not in report.tables(FOUND)
