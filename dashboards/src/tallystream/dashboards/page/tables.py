"""The tables as data frames, with the columns as people read them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pandas as pd

from tallystream.dashboards import units
from tallystream.dashboards.lag.verdict import Verdict
from tallystream.dashboards.lag.wording import age, until_drained

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tallystream.dashboards.lag.evaluate import GroupState
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


def groups(rows: Sequence[GroupRow], states: Mapping[str, GroupState], clock: Clock) -> pd.DataFrame:
    """Return the table of consumer groups. The verdict is a list of one: the browser shows it as a badge."""
    known = [states[row.group] for row in rows]
    return pd.DataFrame(
        {
            "Group": [row.group for row in rows],
            "Verdict": [[state.judgement.verdict.name] for state in known],
            "Lag": _whole(row.lag for row in rows),
            "Age": [age(state.seconds) for state in known],
            "Through in": [until_drained(state.drain) for state in known],
            "Trend": [trend(row.trend) for row in rows],
            "Why": [why(row, state) for row, state in zip(rows, known, strict=True)],
            "Role": [row.role for row in rows],
            "Partitions": [row.partitions for row in rows],
            "Last seen": [clock(row.seen_ms) for row in rows],
        }
    )


def partitions(rows: Sequence[PartitionRow], state: GroupState | None, clock: Clock) -> pd.DataFrame:
    """Return the table of one group's partitions."""
    known = {(one.topic, one.partition): one for one in (state.partitions if state else ())}
    found = [known.get((row.topic, row.partition)) for row in rows]
    return pd.DataFrame(
        {
            "Topic": [row.topic for row in rows],
            "Partition": [row.partition for row in rows],
            "Verdict": [[one.judgement.verdict.name if one else Verdict.NOTFOUND.name] for one in found],
            "Lag": _whole(row.lag for row in rows),
            "Age": [age(one.seconds) if one else units.NOTHING for one in found],
            "Committed": _whole(row.committed for row in rows),
            "End": _whole(row.end for row in rows),
            "Why": [one.judgement.reason if one else "" for one in found],
            "Last seen": [clock(row.seen_ms) for row in rows],
        }
    )


def _whole(values: Iterable[int | None]) -> pd.Series[int]:
    # Not by way of floats, as pandas would have it where a value is missing: they round above 2**53.
    return pd.Series(list(values), dtype="Int64")


def why(row: GroupRow, state: GroupState) -> str:
    """Return the reason of the verdict; a group that is gone, or unknown in part, says so first."""
    if row.gone:
        return "It is no longer on the broker, or not watched any more."
    if row.lag is not None and row.unknown:
        return f"Nothing committed in {row.unknown:,} of {row.partitions:,} partitions. {state.judgement.reason}"
    return state.judgement.reason


def trend(line: Line) -> list[float]:
    """Return a few values of the line, evenly spaced in time, that end with its last one: a sparkline."""
    if not line.times_ms:
        return []
    first, last = line.times_ms[0], line.times_ms[-1]
    times = [last - (last - first) * i // (TREND_POINTS - 1) for i in reversed(range(TREND_POINTS))]
    return [float(line.at(time) or 0) for time in times]
