"""The goals: ratios to Kafka Streams exactly_once_v2 in the same run, and what of them was reached. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OURS, PEER = "tallystream", "kafka-streams"
Found = dict[tuple[str, str], dict[str, Any]]
"""(figure, side) → what was measured"""


class Goal(NamedTuple):
    """One goal: what is measured, in `unit` (x: so many times), and two bounds.

    `least`: the measured must reach them, and not stay below them. `holds`: a condition beside it.
    """

    what: str
    unit: str
    goal: float
    required: float
    least: bool
    measure: Callable[[Found], float]
    holds: Callable[[Found], bool] = lambda _found: True


class Judged(NamedTuple):
    """A goal beside what was measured; None where a figure that it needs was not."""

    goal: Goal
    measured: float | None

    def reaches(self, bound: float) -> bool:
        """Tell whether the measured keeps to a bound."""
        if self.measured is None:
            return False
        return self.measured >= bound if self.goal.least else self.measured <= bound

    @property
    def verdict(self) -> str:
        """Say in words how far it came."""
        if self.measured is None:
            return "not measured"
        if self.reaches(self.goal.goal):
            return "goal met"
        return "required met, goal missed" if self.reaches(self.goal.required) else "**required missed**"


def at_size(found: Found, side: str, figures: tuple[str, str], updates: float) -> float:
    """Return the wall time in seconds that `side` needs for `updates`, on the line through two measured backlogs.

    The line keeps what the launch takes apart from what the updates take, so that the launch is not multiplied. Where
    the larger backlog took no longer than the smaller, as at a tiny scale, its time is taken in proportion.
    """
    (small, large) = (found[figure, side] for figure in figures)
    longer = large["wall_s"] - small["wall_s"]
    if longer <= 0:
        return float(large["wall_s"] * updates / large["updates"])
    a_second = (large["updates"] - small["updates"]) / longer
    return float(large["wall_s"] + (updates - large["updates"]) / a_second)


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


def _growth(found: Found) -> float:
    return float(found["growth-1m", OURS]["batch_ms"] / found["growth-10k", OURS]["batch_ms"])


GOALS = (
    Goal("backlog of 2 M single-metric records, from launch", "x", 5, 3.5, True, _wall("backlog-2m")),
    Goal("backlog of 10 M single-metric records, from launch", "x", 12, 9, True, _wall("backlog-10m")),
    Goal(
        "the same 10 M updates as 200,000 snapshot records (a different, better record), from launch",
        *("x", 20, 12, True, _wall("backlog-10m", "backlog-10m-snapshots")),
    ),
    Goal(
        "100 M updates as snapshot records, Kafka Streams extrapolated from 2 M and 10 M",
        *("x", 60, 35, True, _hundred_million),
    ),
    Goal(
        "CPU seconds a million updates, backlog of 10 M: share of Kafka Streams'",
        *("", 1 / 8, 1 / 5, False, _share("backlog-10m", "cpu_s_per_million")),
    ),
    Goal(
        "latency at 2,000/s, p50: share of Kafka Streams', and keeps up",
        *("", 0.6, 1, False, _share("latency-2000", "p50_ms"), _keeps_up("latency-2000")),
    ),
    Goal(
        "latency at 2,000/s, p99: share of Kafka Streams', and keeps up",
        *("", 0.6, 1, False, _share("latency-2000", "p99_ms"), _keeps_up("latency-2000")),
    ),
    Goal(
        "latency at 10,000/s, p99, and keeps up",
        *("s", 0.5, 1, False, _own("latency-10000", "p99_ms", 0.001), _keeps_up("latency-10000")),
    ),
    Goal("10 updates/s, default settings: cores", "", 0.15, 0.3, False, _own("default-10", "cpu_cores")),
    Goal(
        "2,000 updates/s, default settings: p99, and keeps up",
        *("s", 1, 1.2, False, _own("default-2000", "p99_ms", 0.001), _keeps_up("default-2000")),
    ),
    Goal("2,000 updates/s, default settings: cores", "", 0.25, 0.4, False, _own("default-2000", "cpu_cores")),
    Goal("cost of a batch, 1 M rows to 10 k rows, same update rate", "", 1.3, 2, False, _growth),
    Goal("restart with 1 M rows until the first new sum", "s", 30, 60, False, _own("growth-1m", "restart_s")),
)


def judge(found: Found) -> list[Judged]:
    """Return every goal with what was measured for it."""
    return [Judged(goal, _measured(goal, found)) for goal in GOALS]


def _measured(goal: Goal, found: Mapping[tuple[str, str], dict[str, Any]]) -> float | None:
    try:
        measured = goal.measure(dict(found))
        # What falls behind has no latency that it would keep: so it reaches no bound.
        return measured if goal.holds(dict(found)) else float("inf")
    except (KeyError, ZeroDivisionError):
        return None
