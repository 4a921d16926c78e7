"""The limit and the goal of each figure, and whether the measured value meets them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OURS, PEER = "tallystream", "kafka-streams"
Found = dict[tuple[str, str], dict[str, Any]]
"""(figure, side) → measured values"""


class Goal(NamedTuple):
    """A figure in `unit` (x is a factor), and its two bounds; None if it has no such bound.

    With `at_least`, the bounds are minima, otherwise maxima. `holds` is a further condition.
    """

    what: str
    unit: str
    limit: float | None
    goal: float | None
    measure: Callable[[Found], float]
    holds: Callable[[Found], bool] = lambda _found: True
    at_least: bool = False


class Evaluation(NamedTuple):
    """A goal and the measured value; None if a figure that it needs was not measured."""

    goal: Goal
    measured: float | None

    def meets(self, bound: float) -> bool:
        """Return whether the measured value meets a bound."""
        if self.measured is None:
            return False
        return self.measured >= bound if self.goal.at_least else self.measured <= bound

    @property
    def status(self) -> str:
        """Which of the two bounds are met."""
        if self.measured is None:
            return "not measured"
        limit, goal = self.goal.limit, self.goal.goal
        if limit is not None and not self.meets(limit):
            return "**limit missed**"
        met = [] if limit is None else ["limit met"]
        if goal is not None:
            met.append("goal met" if self.meets(goal) else "goal missed")
        return ", ".join(met)


def at_size(found: Found, side: str, figures: tuple[str, str], updates: float) -> float:
    """Return the wall time in seconds that `side` needs for `updates`, on the line through two measured backlogs.

    The line separates the time of the launch from the time of the updates, so that the launch is not multiplied. If
    the larger backlog took no longer than the smaller, as with a tiny scale, the result is in proportion to its time.
    """
    (small, large) = (found[figure, side] for figure in figures)
    longer = large["wall_s"] - small["wall_s"]
    if longer <= 0:
        return float(large["wall_s"] * updates / large["updates"])
    updates_per_s = (large["updates"] - small["updates"]) / longer
    return float(large["wall_s"] + (updates - large["updates"]) / updates_per_s)


def _wall(figure: str, ours: str | None = None) -> Callable[[Found], float]:
    return lambda found: float(found[figure, PEER]["wall_s"] / found[ours or figure, OURS]["wall_s"])


def _share(figure: str, field: str) -> Callable[[Found], float]:
    return lambda found: float(found[figure, OURS][field] / found[figure, PEER][field])


def _hundred_million(found: Found) -> float:
    ours = found["backlog-100m-snapshots", OURS]
    return at_size(found, PEER, ("backlog-2m", "backlog-10m"), ours["updates"]) / float(ours["wall_s"])


def _own(figure: str, field: str, factor: float = 1.0) -> Callable[[Found], float]:
    return lambda found: float(found[figure, OURS][field]) * factor


def _keeps_up(figure: str) -> Callable[[Found], bool]:
    return lambda found: bool(found[figure, OURS]["keeps_up"])


def _ratio(figures: tuple[str, str], field: str) -> Callable[[Found], float]:
    return lambda found: float(found[figures[0], OURS][field] / found[figures[1], OURS][field])


def _exact(figure: str) -> Callable[[Found], bool]:
    return lambda found: bool(found[figure, OURS]["exact"])


def _memory_mb(found: Found) -> float:
    """Return the memory of a million rows, from the smallest and the largest measured table of counters."""
    stages = [found[figure, OURS] for figure in COUNTERS if (figure, OURS) in found]
    small, large = stages[0], stages[-1]
    return float((large["peak_rss_mb"] - small["peak_rss_mb"]) / (large["rows"] - small["rows"]) * 1e6)


def _backlog(what: str, limit: float, goal: float, measure: Callable[[Found], float]) -> Goal:
    return Goal(what, "x", limit, goal, measure, at_least=True)


COUNTERS = ("rows-10k", "rows-1m", "rows-3m", "rows-10m")
"""The stages of benchmarks.scaling with only counters and one shard, in ascending order of rows."""

_SLOW, _FAST, _BUSY, _DEFAULT = "latency-2000", "latency-10000", "latency-10000-busy", "default-2000"
AGGREGATOR = (
    Goal("10 updates/s, default settings: cores", "", 0.3, 0.15, _own("default-10", "cpu_cores")),
    Goal(
        "2,000 updates/s, default settings: p99, and keeps up",
        *("s", 1.2, 1, _own(_DEFAULT, "p99_ms", 0.001), _keeps_up(_DEFAULT)),
    ),
    Goal("2,000 updates/s, default settings: cores", "", 0.4, 0.25, _own(_DEFAULT, "cpu_cores")),
    Goal(
        "2,000 updates/s, low: p50 as a share of Kafka Streams', and keeps up",
        *("", 0.55, None, _share(_SLOW, "p50_ms"), _keeps_up(_SLOW)),
    ),
    Goal("2,000 updates/s, low: p50, and keeps up", "ms", None, 100, _own(_SLOW, "p50_ms"), _keeps_up(_SLOW)),
    Goal(
        "2,000 updates/s, low: p99 as a share of Kafka Streams', and keeps up",
        *("", 0.75, None, _share(_SLOW, "p99_ms"), _keeps_up(_SLOW)),
    ),
    Goal("2,000 updates/s, low: p99, and keeps up", "ms", None, 180, _own(_SLOW, "p99_ms"), _keeps_up(_SLOW)),
    Goal("10,000 updates/s, low: p99, and keeps up", "ms", 350, 250, _own(_FAST, "p99_ms"), _keeps_up(_FAST)),
    Goal(
        "10,000 updates/s, low, beside a busy loop on each core: p99, and keeps up",
        *("s", 1.2, None, _own(_BUSY, "p99_ms", 0.001), _keeps_up(_BUSY)),
    ),
    Goal("processor time of a batch of 400 records", "ms", 120, 80, _own("batch-400", "cpu_ms_per_batch")),
    Goal("time of a batch, 1 M rows to 10 k rows", "x", 1.5, 1.2, _ratio(("growth-1m", "growth-10k"), "batch_ms")),
    _backlog("backlog of 2 M single-metric records, from launch", 3.5, 5, _wall("backlog-2m")),
    _backlog("backlog of 10 M single-metric records, from launch", 8.5, 10, _wall("backlog-10m")),
    _backlog(
        "the same 10 M updates as 200,000 snapshot records (a different, better record), from launch",
        *(14, 20, _wall("backlog-10m", "backlog-10m-snapshots")),
    ),
    _backlog("100 M updates as snapshots, Kafka Streams extrapolated from 2 M and 10 M", 45, 60, _hundred_million),
    Goal("hostile loads, the costliest: processor time of an update", "µs", 20, 10, _own("table", "hostile_us")),
)
"""The goals of make bench-aggregator."""

_LIVE, _HISTOGRAMS, _LARGE = "rows-1m", "rows-1m-histograms", "rows-10m"
_CORES = "cpu_s_per_million"
SCALING = (
    Goal("1 M rows of counters, 100,000 updates/s: core seconds a million updates", "s", 3, 2, _own(_LIVE, _CORES)),
    Goal("the same: time of a batch", "s", 0.7, 0.4, _own(_LIVE, "batch_ms", 0.001)),
    Goal("20 histograms among the 100: core seconds a million updates", "s", None, 4, _own(_HISTOGRAMS, _CORES)),
    Goal("memory for a million rows of counters", "MB", 300, 150, _memory_mb),
    Goal(
        "10 M rows: restart until the first new sum, exact",
        *("s", 90, 30, _own(_LARGE, "restart_s"), _exact(_LARGE)),
    ),
    Goal("the same: rebuild, exact", "s", 300, 120, _own(_LARGE, "rebuild_s"), _exact(_LARGE)),
    Goal("the same: slowest batch, exact", "s", 10, 3, _own(_LARGE, "slowest_ms", 0.001), _exact(_LARGE)),
)
"""The goals of benchmarks.scaling."""


def evaluate(goals: Sequence[Goal], found: Found) -> list[Evaluation]:
    """Return each goal with its measured value."""
    return [Evaluation(goal, _measured(goal, found)) for goal in goals]


def _measured(goal: Goal, found: Found) -> float | None:
    try:
        measured = goal.measure(found)
        # A side that falls behind, or has a wrong sum, meets no bound.
        return measured if goal.holds(found) else float("-inf" if goal.at_least else "inf")
    except (KeyError, IndexError, ZeroDivisionError):
        return None
