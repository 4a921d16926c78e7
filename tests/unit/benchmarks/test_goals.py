"""Goals, results and tables of the aggregator's benchmark: from numbers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.aggregator import report
from benchmarks.aggregator.goals import AGGREGATOR, OURS, PEER, SCALING, at_size, evaluate
from benchmarks.aggregator.results import Result, Results, medians
from benchmarks.aggregator.scraping import Batches, Slowest, batches, parse

if TYPE_CHECKING:
    from pathlib import Path


def of_backlog(updates: int, wall_s: float, **more: Any) -> dict[str, Any]:
    """Return what a backlog's measurement has."""
    plain = {"updates": updates, "records": updates, "form": "singles", "wall_s": wall_s, "exact": True}
    plain |= {"updates_per_s": updates / wall_s, "cpu_s": 1.0, "cpu_s_per_million": 8.0, "peak_rss_mb": 600.0}
    return {**plain, "others_cores": 0.0, **more}


def of_latency(p50_ms: float, p99_ms: float, *, keeps_up: bool = True) -> dict[str, Any]:
    """Return what a live measurement has."""
    plain = {"rate": 10_000, "p50_ms": p50_ms, "p95_ms": p99_ms, "p99_ms": p99_ms, "drain_s": 0.5, "cpu_cores": 1.0}
    plain |= {"cpu_ms_per_batch": 100.0}
    return {**plain, "keeps_up": keeps_up, "peak_rss_mb": 1.0, "others_cores": 0.0, "exact": True}


FOUND = {
    ("backlog-2m", OURS): of_backlog(2_000_000, 25.0),
    ("backlog-2m", PEER): of_backlog(2_000_000, 100.0),
    ("backlog-10m", OURS): of_backlog(10_000_000, 50.0),
    ("backlog-10m", PEER): of_backlog(10_000_000, 460.0, cpu_s_per_million=40.0),
    ("latency-2000", OURS): of_latency(150, 600),
    ("latency-2000", PEER): of_latency(300, 500),
    ("latency-10000", OURS): of_latency(200, 240),
}


def verdict(found: dict[tuple[str, str], dict[str, Any]], what: str) -> tuple[float | None, str]:
    """Return what was measured for the one goal whose name begins so, and the verdict."""
    (evaluation,) = [one for one in evaluate(AGGREGATOR + SCALING, found) if one.goal.what.startswith(what)]
    return evaluation.measured, evaluation.status


def test_a_figure_is_judged_against_both_bounds() -> None:
    """Both are met, the required one alone, none, and a figure that was not measured."""
    met = {**FOUND, ("backlog-10m", OURS): of_backlog(10_000_000, 46.0)}
    assert verdict(met, "backlog of 10 M") == (10.0, "limit met, goal met")
    assert verdict(FOUND, "backlog of 2 M") == (4.0, "limit met, goal missed")
    assert verdict({**FOUND, ("backlog-2m", OURS): of_backlog(10, 50.0)}, "backlog of 2 M")[1] == "**limit missed**"
    assert verdict(FOUND, "memory for a million") == (None, "not measured")


def test_a_figure_may_have_one_bound() -> None:
    """The share of Kafka Streams' latency is required, a latency in ms is a goal."""
    assert verdict(FOUND, "2,000 updates/s, low: p50 as") == (0.5, "limit met")
    assert verdict(FOUND, "2,000 updates/s, low: p50, and") == (150, "goal missed")
    assert verdict(FOUND, "2,000 updates/s, low: p99 as") == (1.2, "**limit missed**")
    text = report.goals(AGGREGATOR, FOUND)
    assert "| 2,000 updates/s, low: p50, and keeps up |  | ≤ 100 ms | 150 ms | goal missed |" in text


def test_a_side_that_falls_behind_meets_no_bound() -> None:
    """Its latency as measured may look good: it is no latency that lasts."""
    assert verdict(FOUND, "10,000 updates/s, low: p99")[1] == "limit met, goal met"
    behind = {**FOUND, ("latency-10000", OURS): of_latency(300, 240, keeps_up=False)}
    assert verdict(behind, "10,000 updates/s, low: p99")[1] == "**limit missed**"
    assert "| no | **limit missed** |" in report.goals(AGGREGATOR, behind)


def test_a_wrong_sum_meets_no_bound() -> None:
    """A rebuild that is fast and wrong is none."""
    stage = {"restart_s": 1.0, "rebuild_s": 2.0, "slowest_ms": 3.0}
    assert verdict({("rows-10m", OURS): {**stage, "exact": True}}, "the same: rebuild")[1] == "limit met, goal met"
    assert verdict({("rows-10m", OURS): {**stage, "exact": False}}, "the same: rebuild")[1] == "**limit missed**"


def test_memory_is_that_of_the_rows_alone() -> None:
    """What an aggregator without rows takes is not in it; the largest table that was measured decides."""
    found = {("rows-10k", OURS): {"rows": 10_000, "peak_rss_mb": 1002.0}}
    assert verdict(found, "memory for a million") == (None, "not measured")
    found["rows-1m", OURS] = {"rows": 1_010_000, "peak_rss_mb": 1202.0}
    assert verdict(found, "memory for a million") == (200.0, "limit met, goal missed")


def test_an_extrapolation_keeps_the_launch_apart() -> None:
    """Of 100 s for 2 M and 460 s for 10 M, 10 s are the launch and 45 s a million's."""
    assert at_size(FOUND, PEER, ("backlog-2m", "backlog-10m"), 100_000_000) == pytest.approx(10 + 4500)


def test_an_extrapolation_from_noise_is_in_proportion() -> None:
    """Where the larger backlog took less time than the smaller, no time comes out negative."""
    found = {("small", PEER): of_backlog(10, 5.0), ("large", PEER): of_backlog(50, 4.0)}
    assert at_size(found, PEER, ("small", "large"), 500) == 40.0


def test_medians_by_figure_and_side() -> None:
    """Numbers are medians over the rounds; exact is only what was exact in all of them."""
    rounds = [{"wall_s": wall, "exact": exact, "form": "x"} for wall, exact in ((3.0, True), (1.0, False), (2.0, True))]
    found = medians(Result("f", "s", number, one) for number, one in enumerate(rounds))
    assert found == {("f", "s"): {"wall_s": 2.0, "exact": False, "form": "x"}}


def test_a_run_goes_on_with_what_was_measured(tmp_path: Path) -> None:
    """The file of results is taken over only where that is asked for."""
    path = tmp_path / "results.jsonl"
    Results(path).add(Result("f", "s", 1, {"wall_s": 1.5}))
    again = Results(path, resume=True)
    assert again.has("f", "s", 1)
    assert not again.has("f", "s", 2)
    assert again.medians() == {("f", "s"): {"wall_s": 1.5}}
    assert not Results(path).all


def test_the_tables_show_every_side_and_a_wrong_sum() -> None:
    """Each measured figure has a row; a wrong sum stands out."""
    found = {**FOUND, ("backlog-2m", OURS): of_backlog(2_000_000, 25.0, exact=False)}
    text = report.tables(found)
    assert "| 2,000,000 updates as 2,000,000 single-metric records | tallystream | 25.0 | 80,000 |" in text
    assert text.count("**wrong**") == 1
    assert "| backlog of 2 M single-metric records, from launch | ≥ 3.5\N{MULTIPLICATION SIGN} | ≥ 5" in text
    assert all(line.startswith("|") for line in text.splitlines() if line)


def test_the_machines_speed_is_said() -> None:
    """The median of what was measured before the figures, with the least and the most."""
    assert "takes 20.0 ms" in report.speed([19.0, 20.0, 25.0])
    assert "(measured before each figure: 19.0 to 25.0)" in report.speed([19.0, 20.0, 25.0])
    assert not report.speed([])


def test_a_machine_with_other_work_is_said_to_be_one() -> None:
    """From a third of a core on the figures come with a warning; on a quiet machine there is none."""
    assert "1.4 cores" in report.tables({("backlog-2m", OURS): of_backlog(10, 1.0, others_cores=1.4)})
    assert "Other programs used" not in report.tables(FOUND)


def test_the_page_keeps_what_is_around_the_results() -> None:
    """Only what is between the marks is replaced; a page without them is an error."""
    page = f"before\n{report.BEGIN}old\n{report.END}after\n"
    assert report.into(page, "new") == f"before\n{report.BEGIN}\nnew\n{report.END}after\n"
    with pytest.raises(ValueError, match="unpack"):
        report.into("nothing", "new")


EXPOSED = """
# TYPE tallystream_batch_duration_seconds summary
tallystream_batch_duration_seconds{command="aggregate",phase="triggerExecution",quantile="0.5"} 9.0
tallystream_batch_duration_seconds_sum{command="aggregate",phase="triggerExecution"} %s
tallystream_batch_duration_seconds_count{command="aggregate",phase="triggerExecution"} %s
tallystream_table_rows{command="aggregate"} 1e+06
"""


def test_a_batchs_mean_time_is_that_between_two_scrapes() -> None:
    """What ran before the first scrape is not in it; no batch between them is an error, not a zero."""
    before, after = parse(EXPOSED % ("4.0", "2")), parse(EXPOSED % ("5.0", "6"))
    assert batches(before, after) == Batches(4, 250.0)
    assert after["tallystream_table_rows", "", ""] == 1_000_000
    with pytest.raises(ValueError, match="no batch"):
        batches(after, after)
    with pytest.raises(ValueError, match="no batch"):
        batches({}, {})


def test_the_slowest_batch_is_the_longest_between_two_scrapes() -> None:
    """What ran before the first scrape is not it; a scrape without a new batch changes nothing."""
    slowest = Slowest(port=0)
    for total, many in (("9.0", "1"), ("9.5", "2"), ("11.5", "3"), ("11.5", "3"), ("12.0", "4")):
        slowest.note(parse(EXPOSED % (total, many)))
    assert slowest.ms == 2000.0
