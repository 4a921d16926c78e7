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


def _gap(figure: str) -> Callable[[Found], float]:
    return lambda found: float(found[figure, OURS]["gap_ms"]) / 1000


def _counters_us(found: Found) -> float:
    return float(found["table", OURS]["loads"]["counters"]["total"])


def _exact(figure: str) -> Callable[[Found], bool]:
    return lambda found: bool(found[figure, OURS]["exact"])


def _backlog(what: str, limit: float, goal: float, measure: Callable[[Found], float]) -> Goal:
    return Goal(what, "x", limit, goal, measure, at_least=True)


COUNTERS = ("rows-10k", "rows-1m", "rows-3m", "rows-10m")
"""The stages of benchmarks.scaling with only counters and one shard, in ascending order of rows."""

_SLOW, _FAST, _BUSY, _STEADY = "latency-2000", "latency-10000", "latency-10000-busy", "steady-2000"
AGGREGATOR = (
    Goal(
        "2,000 updates/s, low: p50 as a share of Kafka Streams', and keeps up",
        *("", 0.1, 0.05, _share(_SLOW, "p50_ms"), _keeps_up(_SLOW)),
    ),
    Goal(
        "2,000 updates/s, low: p99 as a share of Kafka Streams', and keeps up",
        *("", 0.3, 0.12, _share(_SLOW, "p99_ms"), _keeps_up(_SLOW)),
    ),
    Goal("2,000 updates/s, low: cores", "", 0.22, 0.15, _own(_SLOW, "cpu_cores")),
    Goal(
        "10,000 updates/s, low: p99 as a share of Kafka Streams', and keeps up",
        *("", 0.35, 0.15, _share(_FAST, "p99_ms"), _keeps_up(_FAST)),
    ),
    Goal(
        "10,000 updates/s, low, beside a busy loop on each core: p99, and keeps up",
        *("s", 0.8, 0.4, _own(_BUSY, "p99_ms", 0.001), _keeps_up(_BUSY)),
    ),
    Goal("longest gap between two sums in ten minutes at 2,000 updates/s, low", "s", 0.6, 0.2, _gap(_STEADY)),
    Goal("10 updates/s, default settings: cores", "", 0.08, 0.04, _own("default-10", "cpu_cores")),
    Goal("idle: cores", "", 0.06, 0.02, _own("idle", "cpu_cores")),
    Goal("idle: memory", "MB", 800, 600, _own("idle", "peak_mb")),
    _backlog("backlog of 2 M single-metric records, from launch", 3.8, 5, _wall("backlog-2m")),
    _backlog("backlog of 10 M single-metric records, from launch", 8, 12, _wall("backlog-10m")),
    _backlog(
        "the same 10 M updates as 200,000 snapshot records (a different, better record), from launch",
        *(16, 20, _wall("backlog-10m", "backlog-10m-snapshots")),
    ),
    _backlog("100 M updates as snapshots, Kafka Streams extrapolated from 2 M and 10 M", 26, 45, _hundred_million),
    Goal("the table alone, counters: processor time of an update", "µs", 0.94, 0.6, _counters_us),
    Goal("hostile loads, the costliest: processor time of an update", "µs", 20, 10, _own("table", "hostile_us")),
)
"""The goals of make bench-aggregator."""

_CORES, _LARGE, _HISTOGRAMS = "cpu_s_per_million", "rows-10m", "rows-1m-histograms"
SCALING = (
    Goal("1 M rows, 100,000 updates/s: core seconds a million updates", "s", 2.4, 1.5, _own("rows-1m", _CORES)),
    Goal("the same: p99", "s", 0.8, 0.6, _own("rows-1m", "p99_ms", 0.001)),
    Goal("the same, low: core seconds a million updates", "s", 3.2, 2, _own("rows-1m-low", _CORES)),
    Goal("the same, low: p50", "ms", 40, 25, _own("rows-1m-low", "p50_ms")),
    Goal("the same, low: p99", "ms", 200, 100, _own("rows-1m-low", "p99_ms")),
    Goal("20 histograms among the 100: core seconds a million updates", "s", 8, 4, _own(_HISTOGRAMS, _CORES)),
    Goal("bytes to metrics-table an update", "B", 30, 10, _own("rows-1m", "table_update_bytes")),
    Goal("memory with 1 M rows", "MB", 1000, 800, _own("rows-1m", "peak_mb")),
    Goal("memory with 10 M rows", "MB", 1600, 1200, _own(_LARGE, "peak_mb")),
    Goal("10,000 rows: restart until the first new sum", "s", 9, 6, _own("rows-10k", "restart_s"), _exact("rows-10k")),
    Goal("10 M rows: restart until the first new sum", "s", 20, 12, _own(_LARGE, "restart_s"), _exact(_LARGE)),
    Goal("the same with a lost checkpoint", "s", 180, 90, _own(_LARGE, "restored_s"), _exact(_LARGE)),
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
