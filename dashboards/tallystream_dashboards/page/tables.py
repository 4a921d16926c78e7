"""The page's tables as data frames. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pandas as pd

from tallystream_dashboards import formatting
from tallystream_dashboards.data.groups import role
from tallystream_dashboards.data.lines import Line
from tallystream_dashboards.data.sums import DISTRIBUTIONS, mean_text, noun
from tallystream_dashboards.lag.formatting import catches_up_in, time_lag, why

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tallystream_dashboards.data.duplicates import CoveredOffsets
    from tallystream_dashboards.data.sums import Metric
    from tallystream_dashboards.lag.state import GroupState, PartitionState
    from tallystream_dashboards.page.metrics_data import Event

Clock: TypeAlias = "Callable[[int], str]"
"""A function that returns epoch milliseconds as text, in the visitor's time zone."""

TREND_POINTS = 40
MAX_UNFILTERED = 20
"""Tables with more rows have a filter."""
MINUTE_MS = 60_000


def sums(metrics: Sequence[Metric], clock: Clock) -> pd.DataFrame:
    """Return the table of sums. Values are text: a browser would round counts above 2**53."""
    return pd.DataFrame(
        [
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
    )


def groups(states: Sequence[GroupState], trends: Mapping[str, Line], clock: Clock, *, now_ms: int) -> pd.DataFrame:
    """Return the table of consumer groups. The status is a list of one item, which is drawn as a badge."""
    return pd.DataFrame(
        {
            "Group": [state.group for state in states],
            "Status": [[state.status_name] for state in states],
            "Lag": _integers(state.lag for state in states),
            "Time lag": [time_lag(state.time_lag) for state in states],
            "Catches up in": [catches_up_in(state.catch_up) for state in states],
            "Trend": [trend(trends.get(state.group, Line(state.group))) for state in states],
            "Partitions": [state.partition_count for state in states],
            "Why": [why(state) for state in states],
            "Since": ["" if state.since_ms is None else clock(state.since_ms) for state in states],
            "Role": [role(state.group) for state in states],
            "Last seen": [clock(min(now_ms, state.seen_ms)) for state in states],
        }
    )


def partitions(states: Sequence[PartitionState]) -> pd.DataFrame:
    """Return the table of one group's partitions."""
    return pd.DataFrame(
        {
            "Topic": [one.topic for one in states],
            # As text: a partition's number is a name, without thousands separators.
            "Partition": [str(one.partition) for one in states],
            "Status": [[one.evaluation.status.name] for one in states],
            "Lag": _integers(one.lag for one in states),
            "Time lag": [time_lag(one.time_lag) for one in states],
            "Produced/s": [formatting.rate(one.rates.produced if one.rates else None) for one in states],
            "Consumed/s": [formatting.rate(one.rates.consumed if one.rates else None) for one in states],
            "Committed": _integers(one.committed for one in states),
            "End": _integers(one.end for one in states),
            "Why": [one.evaluation.reason for one in states],
        }
    )


def since(state: GroupState, now_ms: int) -> str:
    """Return how long the group has had its status, as the end of a phrase: ` for 12 min`; empty below a minute."""
    if state.since_ms is None or now_ms - state.since_ms < MINUTE_MS:
        return ""
    return f" for {formatting.duration((now_ms - state.since_ms) / 1000)}"


def events(events: Sequence[Event], clock: Clock) -> pd.DataFrame:
    """Return the table of events, newest first."""
    newest = sorted(events, key=lambda event: -event.ts_ms)
    return pd.DataFrame(
        {
            "Time": [clock(event.ts_ms) for event in newest],
            "Kind": [event.kind for event in newest],
            "Event": [event.text for event in newest],
        }
    )


def covered_offsets(partitions: Sequence[CoveredOffsets]) -> pd.DataFrame:
    """Return the table of positions."""
    return pd.DataFrame(
        {
            "Topic": [one.topic for one in partitions],
            "Partition": [one.partition for one in partitions],
            "Counted from": _integers(one.start for one in partitions),
            "Position": _integers(one.position for one in partitions),
            "Offsets": _integers(one.count for one in partitions),
        }
    )


def _integers(values: Iterable[int | None]) -> pd.Series[int]:
    # pandas uses floats for columns with missing values by default, which round integers above 2**53.
    return pd.Series(list(values), dtype="Int64")


def trend(line: Line) -> list[float]:
    """Return `TREND_POINTS` values of the line at equal intervals, up to its last one, for a sparkline."""
    if not line.times_ms:
        return []
    first, last = line.times_ms[0], line.times_ms[-1]
    times = [last - (last - first) * i // (TREND_POINTS - 1) for i in reversed(range(TREND_POINTS))]
    return [float(line.at(time) or 0) for time in times]
