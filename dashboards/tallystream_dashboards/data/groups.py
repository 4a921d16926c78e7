"""The data of the views of consumer groups, for one refresh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream_dashboards.data.lines import MAX_LINES, ChartData, Line, chart_data, fitted
from tallystream_dashboards.lag.reader import last_round_ms, read_group, read_groups
from tallystream_dashboards.lag.storage import GROUPS, LAG

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream_aggregator.sinks.base import PointReader, Series
    from tallystream_dashboards.data.lines import Period
    from tallystream_dashboards.lag.state import GroupState

AGGREGATOR, SHIPPER = "aggregator", "shipper"
ROLES = {"tallystream-aggregator": AGGREGATOR, "tallystream-shipper": SHIPPER}

MAX_GROUPS = 300
"""With more groups, only the worst ones have a sparkline and a line."""
WORST_GROUPS = 50
_OVER_TIME = {"seconds": "time lag", "produced": "produced", "consumed": "consumed"}
"""The fields of a group that have their own chart, and the labels of their lines."""
MAX_PARTITIONS = 100
"""With more partitions, a group's lag over time is read for the worst `MAX_LINES` only."""


@dataclass(frozen=True, slots=True)
class GroupsNow:
    """Every group, worst first, and the time of the newest round (epoch ms; None: there is none)."""

    states: tuple[GroupState, ...]
    round_ms: int | None

    def until_round(self, period: Period) -> Period:
        """Return the period without rounds that have ended since."""
        return period if self.round_ms is None else period._replace(until_ms=self.round_ms + 1)


@dataclass(frozen=True, slots=True)
class GroupsView:
    """The lag of the groups over time."""

    trends: Mapping[str, Line]
    chart: ChartData


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group with its partitions, and over time its lag by partition, its time lag and its rates."""

    state: GroupState | None
    by_partition: ChartData
    time_lag: ChartData
    rates: ChartData


def role(group: str) -> str:
    """Return a group's role: the aggregator, the shipper or a consumer. A topic prefix does not change it."""
    return next((own for name, own in ROLES.items() if group.endswith(name)), "consumer")


def prefix(group: str) -> str:
    """Return what is before the name of an aggregator's or a shipper's group: the prefix of its topics."""
    return next((group.removesuffix(name) for name in ROLES if group.endswith(name)), "")


def read_groups_now(reader: PointReader, period: Period) -> GroupsNow:
    """Read every group as at the end of the period.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    round_ms = last_round_ms(reader, at_ms=period.until_ms)
    return GroupsNow(() if round_ms is None else tuple(read_groups(reader, at_ms=round_ms)), round_ms)


def read_groups_view(reader: PointReader, groups: GroupsNow, period: Period) -> GroupsView:
    """Read the lag of the groups over the period, up to their round.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    period, states = groups.until_round(period), groups.states
    worst = [{"group": state.group} for state in states[:WORST_GROUPS]]
    history = _lags(reader, GROUPS, [{}] if len(states) <= MAX_GROUPS else worst, period)
    trends = {one.tags["group"]: _line(one.tags["group"], one) for one in history}
    lines = [trends[state.group] for state in states if state.group in trends and not state.gone]
    lines.sort(key=lambda line: -(line.last or 0))
    # Unchanged points are not stored: the last value is valid until the newest round.
    left_out = _left_out(len(states), MAX_GROUPS, WORST_GROUPS)
    (chart,) = fitted(chart_data(lines, period.start_ms, period.end_ms, until_ms=groups.round_ms, left_out=left_out))
    return GroupsView(trends, chart)


def read_group_view(reader: PointReader, groups: GroupsNow, group: str, period: Period) -> GroupView:
    """Read one of the groups with its partitions in their round, and its lag over the period up to there.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    period = groups.until_round(period)
    start_ms, end_ms, until_ms = period
    state = None if groups.round_ms is None else read_group(reader, group, at_ms=groups.round_ms)
    history = {
        one.field: one
        for one in reader.read(GROUPS, tuple(_OVER_TIME), start_ms=start_ms, end_ms=until_ms, tags={"group": group})
    }
    partitions = () if state is None else state.partitions
    count = len(partitions)
    worst = [{"group": group, "topic": one.topic, "partition": str(one.partition)} for one in partitions[:MAX_LINES]]
    lags = _lags(reader, LAG, [{"group": group}] if count <= MAX_PARTITIONS else worst, period)
    lines = [_line(f"{one.tags['topic']}/{one.tags['partition']}", one) for one in lags]
    lines.sort(key=lambda line: -(line.last or 0))
    time_lag, *rates = (_line(name, history.get(field)) for field, name in _OVER_TIME.items())
    # Unchanged points are not stored: the last value is valid until the newest round, unless the group is gone.
    last_ms = groups.round_ms if state is not None and not state.gone else None
    charts = fitted(
        chart_data(lines, start_ms, end_ms, until_ms=last_ms, left_out=_left_out(count, MAX_PARTITIONS, MAX_LINES)),
        chart_data([time_lag], start_ms, end_ms, until_ms=last_ms),
        chart_data(rates, start_ms, end_ms, until_ms=last_ms),
    )
    return GroupView(state, *charts)


def _left_out(count: int, limit: int, worst: int) -> int:
    """Return for how many groups or partitions no history is read: above the limit it is read for the worst only."""
    return 0 if count <= limit else count - worst


def _lags(reader: PointReader, measurement: str, of: Iterable[Mapping[str, str]], period: Period) -> list[Series]:
    """Return the lag over time of all that have one of these sets of tags."""
    start_ms, _, end_ms = period
    return [
        one for tags in of for one in reader.read(measurement, ("lag",), start_ms=start_ms, end_ms=end_ms, tags=tags)
    ]


def _line(label: str, series: Series | None) -> Line:
    if series is None:
        return Line(label)
    values = [value if isinstance(value, int | float) else None for value in series.values]
    return Line(label, list(series.times_ms), values)
