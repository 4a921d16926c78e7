"""The tables as data frames, with the columns as people read them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pandas as pd

from tallystream.dashboards import units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tallystream.dashboards.page.lags import GroupRow, PartitionRow
    from tallystream.dashboards.page.lines import Line
    from tallystream.dashboards.page.sums import SumRow

Clock: TypeAlias = "Callable[[int], str]"
"""Epoch milliseconds → the time as text, in the reader's time zone."""

TREND_POINTS = 40


def sums(rows: Sequence[SumRow], clock: Clock) -> pd.DataFrame:
    """Return the table of sums. Values are text: a browser would round counts above 2**53."""
    return pd.DataFrame(
        [
            {
                "Metric": row.metric,
                "Tags": row.tags,
                "Type": row.type,
                "Sum": units.number(row.value),
                "Mean": "" if row.mean is None else units.number(row.mean),
                "Living instances": row.instances,
                "Living lives": row.lives,
                "Last change": clock(row.changed_ms),
            }
            for row in rows
        ]
    )


def groups(rows: Sequence[GroupRow], clock: Clock) -> pd.DataFrame:
    """Return the table of consumer groups."""
    return pd.DataFrame(
        {
            "Group": [row.group for row in rows],
            "Role": [row.role for row in rows],
            "Lag": _whole(row.lag for row in rows),
            "Trend": [trend(row.trend) for row in rows],
            "Worst partition": _whole(row.worst for row in rows),
            "Partitions": [row.partitions for row in rows],
            "State": [state(row) for row in rows],
            "Last seen": [clock(row.seen_ms) for row in rows],
        }
    )


def partitions(rows: Sequence[PartitionRow], clock: Clock) -> pd.DataFrame:
    """Return the table of one group's partitions."""
    return pd.DataFrame(
        {
            "Topic": [row.topic for row in rows],
            "Partition": [row.partition for row in rows],
            "Lag": _whole(row.lag for row in rows),
            "Committed": _whole(row.committed for row in rows),
            "End": _whole(row.end for row in rows),
            "Last seen": [clock(row.seen_ms) for row in rows],
        }
    )


def _whole(values: Iterable[int | None]) -> pd.Series[int]:
    # Not by way of floats, as pandas would have it where a value is missing: they round above 2**53.
    return pd.Series(list(values), dtype="Int64")


def state(row: GroupRow) -> str:
    """Say in words what a number can't."""
    if row.gone:
        return "gone: no longer on the broker, or not watched any more"
    if row.lag is None:
        return "nothing committed yet"
    if row.unknown:
        return f"nothing committed in {row.unknown:,} of {row.partitions:,} partitions"
    return "up to date" if row.lag == 0 else "behind"


def trend(line: Line) -> list[float]:
    """Return a few values of the line, evenly spaced in time, that end with its last one: a sparkline."""
    if not line.times_ms:
        return []
    first, last = line.times_ms[0], line.times_ms[-1]
    times = [last - (last - first) * i // (TREND_POINTS - 1) for i in reversed(range(TREND_POINTS))]
    return [float(line.at(time) or 0) for time in times]
