"""The page's tables: a row has its cells by the names of the columns. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from tallystream_dashboards import formatting
from tallystream_dashboards.data.groups import role
from tallystream_dashboards.data.lines import Line
from tallystream_dashboards.data.sums import DISTRIBUTIONS, mean_text, noun
from tallystream_dashboards.lag import time_lag

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tallystream_dashboards.data.duplicates import CoveredOffsets
    from tallystream_dashboards.data.sums import Metric
    from tallystream_dashboards.lag.state import GroupState, PartitionState
    from tallystream_dashboards.page.metrics_data import Event

Clock: TypeAlias = "Callable[[int], str]"
"""A function that returns epoch milliseconds as text, in the visitor's time zone."""

Table: TypeAlias = "list[dict[str, Any]]"
"""Rows, whose cells are texts, integers, None for what is not known, and lists: of texts, or of a trend's numbers."""

TREND_POINTS = 40
MAX_UNFILTERED = 20
"""Tables with more rows have a filter."""
MINUTE_MS = 60_000


def sums(metrics: Sequence[Metric], clock: Clock) -> Table:
    """Return the table of sums."""
    return [
        {
            "Metric": metric.name,
            "Tags": metric.tags_text,
            "Type": metric.type,
            "Sum": formatting.number(metric.value.last)
            + (f" {noun(metric.type).lower()}" if metric.type in DISTRIBUTIONS else ""),
            "Mean": mean_text(metric.type, metric.mean),
            "Living instances": metric.newest("instances"),
            "Living lives": metric.newest("lives"),
            "Last change": clock(metric.changed_ms),
        }
        for metric in metrics
    ]


def groups(states: Sequence[GroupState], trends: Mapping[str, Line], clock: Clock, *, now_ms: int) -> Table:
    """Return the table of consumer groups. The status is a list of one item, which is drawn as a badge."""
    return [
        {
            "Group": state.group,
            "Status": [state.status_name],
            "Lag": state.lag,
            "Time lag": time_lag.text(state.time_lag),
            "Catches up in": state.catch_up.drain,
            "Trend": trend(trends.get(state.group, Line(state.group))),
            "Partitions": state.partition_count,
            "Why": state.evaluation.reason,
            "Since": "" if state.since_ms is None else clock(state.since_ms),
            "Role": role(state.group),
            "Last seen": clock(min(now_ms, state.seen_ms)),
        }
        for state in states
    ]


def partitions(states: Sequence[PartitionState]) -> Table:
    """Return the table of one group's partitions."""
    return [
        {
            "Topic": one.topic,
            # As text: a partition's number is a name, without thousands separators.
            "Partition": str(one.partition),
            "Status": [one.evaluation.status.name],
            "Lag": one.lag,
            "Time lag": time_lag.text(one.time_lag),
            "Produced/s": formatting.rate(one.rates.produced if one.rates else None),
            "Consumed/s": formatting.rate(one.rates.consumed if one.rates else None),
            "Committed": one.committed,
            "End": one.end,
            "Why": one.evaluation.reason,
        }
        for one in states
    ]


def since(state: GroupState, now_ms: int) -> str:
    """Return how long the group has had its status, as the end of a phrase: ` for 12 min`; empty below a minute."""
    if state.since_ms is None or now_ms - state.since_ms < MINUTE_MS:
        return ""
    return f" for {formatting.duration((now_ms - state.since_ms) / 1000)}"


def events(events: Sequence[Event], clock: Clock) -> Table:
    """Return the table of events, newest first."""
    newest = sorted(events, key=lambda event: -event.ts_ms)
    return [{"Time": clock(event.ts_ms), "Kind": event.kind, "Event": event.text} for event in newest]


def covered_offsets(partitions: Sequence[CoveredOffsets]) -> Table:
    """Return the table of positions."""
    return [
        {
            "Topic": one.topic,
            "Partition": one.partition,
            "Counted from": one.start,
            "Position": one.position,
            "Offsets": one.count,
        }
        for one in partitions
    ]


def trend(line: Line) -> list[float]:
    """Return `TREND_POINTS` values of the line at equal intervals, up to its last one, for a sparkline."""
    if not line.times_ms:
        return []
    first, last = line.times_ms[0], line.times_ms[-1]
    times = [last - (last - first) * i // (TREND_POINTS - 1) for i in reversed(range(TREND_POINTS))]
    return [float(line.at(time) or 0) for time in times]
