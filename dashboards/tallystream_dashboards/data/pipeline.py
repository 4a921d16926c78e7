"""The aggregator's own pipeline, hop by hop: instance → metrics → sums → store → this page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream_aggregator.shipping.points import is_sum
from tallystream_dashboards import formatting
from tallystream_dashboards.data.lines import ChartData, Line, chart_data
from tallystream_dashboards.data.sums import MAX_MEASUREMENTS
from tallystream_dashboards.lag.catch_up import Between, CatchUp
from tallystream_dashboards.lag.formatting import catches_up_in, lag_range, time_lag, why
from tallystream_dashboards.lag.reader import read_group
from tallystream_dashboards.lag.storage import ALL, ENDS, GROUPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream_aggregator.sinks.base import PointReader, Series
    from tallystream_dashboards.data.groups import GroupsNow
    from tallystream_dashboards.data.period import Period
    from tallystream_dashboards.lag.catch_up import TimeToCatchUp
    from tallystream_dashboards.lag.state import GroupState
    from tallystream_dashboards.lag.status import Status

AGGREGATOR, SHIPPER = "aggregator", "shipper"
ROLES = {"tallystream-aggregator": AGGREGATOR, "tallystream-shipper": SHIPPER}


def role(group: str) -> str:
    """Return a group's role: the aggregator, the shipper or a consumer. A topic prefix does not change it."""
    return next((own for name, own in ROLES.items() if group.endswith(name)), "consumer")


_TO_SUMS, _TO_STORE = "metrics → sums", "sums → store"


@dataclass(frozen=True, slots=True)
class Hop:
    """One hop: its delay as text, its status if it has one, and a sentence with details."""

    name: str
    delay: str
    status: Status | None
    detail: str


def read_pipeline(reader: PointReader, groups: GroupsNow, period: Period) -> tuple[list[Hop], ChartData]:
    """Return the hops at the end of the period, and the time lag of the aggregator and the shipper over the period.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    aggregator, shipper = own_groups(groups.states)
    start_ms, end_ms, until_ms = period
    ends = [
        series
        for topic in reported_topics(reader, aggregator, at_ms=end_ms)
        for series in reader.read(ENDS, ("end",), start_ms=start_ms, end_ms=until_ms, tags={"topic": topic})
    ]
    lines = []
    for name, state in ((_TO_SUMS, aggregator), (_TO_STORE, shipper)):
        if state is not None:
            tags = {"group": state.group}
            history = reader.read(GROUPS, ("seconds",), start_ms=start_ms, end_ms=until_ms, tags=tags)
            lines += [Line(name, list(one.times_ms), [float(value) for value in one.values]) for one in history]
    pipeline = hops(
        aggregator,
        shipper,
        arrived_ms=last_arrival_ms(ends),
        stored_ms=_newest_sum_ms(reader, start_ms=start_ms, end_ms=until_ms),
        now_ms=end_ms,
    )
    # Unchanged points are not stored: the last age is valid until the newest round, unless the group is gone.
    gone = any(state.gone for state in (aggregator, shipper) if state is not None)
    return pipeline, chart_data(lines, start_ms, end_ms, until_ms=None if gone else groups.round_ms)


def reported_topics(reader: PointReader, aggregator: GroupState | None, *, at_ms: int) -> list[str]:
    """Return the topics that instances report to, which are those that the aggregator's group reads."""
    detailed = read_group(reader, aggregator.group, at_ms=at_ms) if aggregator is not None else None
    return sorted({one.topic for one in detailed.partitions}) if detailed is not None else []


def _newest_sum_ms(reader: PointReader, *, start_ms: int, end_ms: int) -> int | None:
    names = [name for name in reader.measurements() if name not in ALL and is_sum(name)]
    times_ms = (
        series.times_ms[-1]
        for name in names[:MAX_MEASUREMENTS]
        for series in reader.read(name, ("lives",), start_ms=start_ms, end_ms=end_ms)
    )
    return max(times_ms, default=None)


def own_groups(states: Iterable[GroupState]) -> tuple[GroupState | None, GroupState | None]:
    """Return the aggregator's group and the shipper's. Of several, prefer one on the broker, then the highest lag."""
    ordered = sorted(states, key=lambda one: (one.gone, -(one.lag or 0)))
    aggregator, shipper = (
        next((one for one in ordered if role(one.group) == own), None) for own in (AGGREGATOR, SHIPPER)
    )
    return aggregator, shipper


def last_arrival_ms(ends: Sequence[Series]) -> int | None:
    """Return when a record last arrived, the newest time at which an end had changed; None: no change in `ends`."""
    changes = (
        one.times_ms[i]
        for one in ends
        for i in range(len(one.times_ms) - 1, 0, -1)
        if one.values[i] != one.values[i - 1]
    )
    return max(changes, default=None)


def hops(
    aggregator: GroupState | None,
    shipper: GroupState | None,
    *,
    arrived_ms: int | None,
    stored_ms: int | None,
    now_ms: int,
) -> list[Hop]:
    """Return the hops in order. `arrived_ms` is when a record last arrived, `stored_ms` the time of the newest sum."""
    return [
        _from_instances(arrived_ms, now_ms),
        _group_hop(_TO_SUMS, aggregator, "the aggregator"),
        _group_hop(_TO_STORE, shipper, "the shipper"),
        _to_page(stored_ms, now_ms),
    ]


def _from_instances(arrived_ms: int | None, now_ms: int) -> Hop:
    if arrived_ms is None:
        return Hop("instance → metrics", formatting.DASH, None, "There was no record in the chosen period.")
    age_ms = max(0, now_ms - arrived_ms)
    # It has no status: Tallystream's own metrics arrive there too, and how often an app reports is its own choice.
    detail = "The newest record in `metrics`, of an app or of Tallystream itself."
    return Hop("instance → metrics", f"{formatting.duration(age_ms / 1000)} ago", None, detail)


def _group_hop(name: str, state: GroupState | None, owner: str) -> Hop:
    if state is None:
        return Hop(name, formatting.DASH, None, f"There is no consumer group of {owner}. Check that it runs.")
    details = (f"{lag_range(state)} records behind.", _catches_up(state.catch_up), why(state))
    return Hop(name, time_lag(state.time_lag), state.evaluation.status, " ".join(one for one in details if one))


def _catches_up(catch_up: TimeToCatchUp) -> str:
    match catch_up:
        case CatchUp.STEADY:
            return "It keeps up."
        case Between():
            return f"Catches up in {catches_up_in(catch_up)}."
        case CatchUp.UNKNOWN:
            return ""
    return f"Catches up: {catches_up_in(catch_up)}."


def _to_page(stored_ms: int | None, now_ms: int) -> Hop:
    if stored_ms is None:
        return Hop("store → page", formatting.DASH, None, "There is no sum in the store yet.")
    age_s = max(0, now_ms - stored_ms) / 1000
    detail = "The newest sum in the store; a sum is written when it changes."
    return Hop("store → page", f"{formatting.duration(age_s)} ago", None, detail)
