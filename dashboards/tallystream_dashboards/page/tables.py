"""The page's tables: a row has its cells by the names of the columns. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from tallystream_dashboards import formatting
from tallystream_dashboards.data.groups import role
from tallystream_dashboards.data.lines import Line
from tallystream_dashboards.data.sums import DISTRIBUTIONS, noun, value_text, with_totals
from tallystream_dashboards.lag import time_lag
from tallystream_dashboards.page.html_table import Anchor
from tallystream_dashboards.page.url_state import page_link

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tallystream_dashboards.data.compare import OfPartition
    from tallystream_dashboards.data.home import Home
    from tallystream_dashboards.data.sums import Metric
    from tallystream_dashboards.lag.state import GroupState, PartitionState
    from tallystream_dashboards.page.metrics_data import Event
    from tallystream_dashboards.page.url_state import Selection

Clock: TypeAlias = "Callable[[int], str]"
"""A function that returns epoch milliseconds as text, in the visitor's time zone."""

Table: TypeAlias = "list[dict[str, Any]]"
"""Rows, whose cells are texts, integers, None for what is not known, and lists: of texts, or of a trend's numbers."""

TREND_POINTS = 40
MAX_UNFILTERED = 20
"""Tables with more rows have a filter."""
MINUTE_MS = 60_000


def sums(metrics: Sequence[Metric], clock: Clock, *, at_ms: int) -> Table:
    """Return the table of sums, with totals over tags and with rates at `at_ms`."""
    return [
        {
            "Metric": metric.name,
            "Tags": metric.tags_text,
            "Type": metric.type,
            "Sum": formatting.number(metric.value.last)
            + (f" {noun(metric.type).lower()}" if metric.type in DISTRIBUTIONS else ""),
            "Rate/s": formatting.rate(metric.rate(at_ms)),
            "Mean": value_text(metric.type, metric.mean),
            "p50": value_text(metric.type, metric.percentile("p50")),
            "p99": value_text(metric.type, metric.percentile("p99")),
            "Living instances": metric.newest("instances"),
            "Living lives": metric.newest("lives"),
            "Last change": clock(metric.changed_ms),
        }
        for metric in with_totals(metrics)
    ]


def apps(home: Home, selection: Selection) -> Table:
    """Return the table of apps. Each name leads to the app's metrics."""
    return [
        {
            "App": Anchor(one.name, page_link({"view": "metrics", "app": one.name}, selection)),
            "Living": None if one.instances is None else one.instances.living,
            "Ended": None if one.instances is None else one.instances.ended,
            "Silent": None if one.instances is None else one.instances.silent,
            "Main sum": "" if one.main is None else f"{one.main.name} {one.main.tags_text}".strip(),
            "Sum": formatting.number(None if one.main is None else one.main.value.last),
            "Rate/s": formatting.rate(None if one.main is None else one.main.rate(home.at_ms)),
            "Trend": trend(one.trend),
            "p99": "" if one.slowest is None else _slowest(one.slowest),
            "Lag": one.lag,
            "Lost": None if one.lost is None else one.lost.short,
            "Twice": None if one.twice is None else one.twice.short,
        }
        for one in home.apps
    ]


def _slowest(timer: Metric) -> str:
    return f"{value_text(timer.type, timer.percentile('p99'))} {timer.name}"


def groups(states: Sequence[GroupState], trends: Mapping[str, Line], clock: Clock, *, now_ms: int) -> Table:
    """Return the table of consumer groups. The status is a list of one item, which is drawn as a badge."""
    return [
        {
            "Group": state.group,
            "Status": [state.status_name],
            "Lag": state.lag_text,
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


def compared(partitions: Sequence[OfPartition]) -> Table:
    """Return the table of what is compared, by topic and partition."""
    return [
        {
            "Topic": one.place.topic,
            "Partition": one.place.partition,
            "Offsets": one.known.size,
            "Processed": one.processed.size,
            "Before": one.before,
            "In flight": one.in_flight,
        }
        for one in partitions
    ]


def trend(line: Line) -> list[float]:
    """Return `TREND_POINTS` values of the line at equal intervals, up to its last one, for a sparkline.

    It is 0 before the first value. If no value is known, there is no trend.
    """
    if all(value is None for value in line.values):
        return []
    first, last = line.times_ms[0], line.times_ms[-1]
    times = [last - (last - first) * i // (TREND_POINTS - 1) for i in reversed(range(TREND_POINTS))]
    return [float(line.at(time) or 0) for time in times]
