"""The aggregator's own pipeline, hop by hop: instance → metrics → sums → store → this page. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tallystream_dashboards import formatting
from tallystream_dashboards.lag.catch_up import Between, CatchUp
from tallystream_dashboards.lag.formatting import catches_up_in, lag_range, time_lag, why
from tallystream_dashboards.lag.status import Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tallystream_aggregator.sinks.base import Series
    from tallystream_dashboards.lag.catch_up import TimeToCatchUp
    from tallystream_dashboards.lag.state import GroupState

AGGREGATOR, SHIPPER = "aggregator", "shipper"
ROLES = {"tallystream-aggregator": AGGREGATOR, "tallystream-shipper": SHIPPER}


def role(group: str) -> str:
    """Return a group's role: the aggregator, the shipper or a consumer. A topic prefix does not change it."""
    return next((what for name, what in ROLES.items() if group.endswith(name)), "consumer")


QUIET_MS = 60_000
"""The longest time without a record before a warning, in ms: each instance reports at least once a minute."""


@dataclass(frozen=True, slots=True)
class Hop:
    """One hop: its delay as text, its status if it has one, and a sentence with details."""

    name: str
    delay: str
    status: Status | None
    detail: str


def own_groups(states: Iterable[GroupState]) -> tuple[GroupState | None, GroupState | None]:
    """Return the aggregator's group and the shipper's. Of several, prefer one on the broker, then the highest lag."""
    living = sorted(states, key=lambda one: (one.gone, -(one.lag or 0)))
    return tuple(next((one for one in living if role(one.group) == what), None) for what in (AGGREGATOR, SHIPPER))  # type: ignore[return-value]  # two


def last_arrival_ms(ends: Sequence[Series]) -> int | None:
    """Return when a record last arrived, the newest time at which an end had changed; None: no change in `ends`."""
    grown = (
        one.times_ms[i]
        for one in ends
        for i in range(len(one.times_ms) - 1, 0, -1)
        if one.values[i] != one.values[i - 1]
    )
    return max(grown, default=None)


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
        _arrival(arrived_ms, now_ms),
        _reading("metrics → sums", aggregator, "the aggregator"),
        _reading("sums → store", shipper, "the shipper"),
        _stored(stored_ms, now_ms),
    ]


def _arrival(arrived_ms: int | None, now_ms: int) -> Hop:
    if arrived_ms is None:
        return Hop("instance → metrics", formatting.NOTHING, None, "There was no record in the chosen period.")
    silent_ms = max(0, now_ms - arrived_ms)
    quiet = silent_ms > QUIET_MS
    detail = "The newest record in `metrics`." + (" Check that an instance reports." if quiet else "")
    status = Status.WARN if quiet else Status.OK
    return Hop("instance → metrics", f"{formatting.duration(silent_ms / 1000)} ago", status, detail)


def _reading(name: str, state: GroupState | None, who: str) -> Hop:
    if state is None:
        return Hop(name, formatting.NOTHING, None, f"There is no consumer group of {who}. Check that it runs.")
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


def _stored(stored_ms: int | None, now_ms: int) -> Hop:
    if stored_ms is None:
        return Hop("store → page", formatting.NOTHING, None, "There is no sum in the store yet.")
    behind = f"{formatting.duration(max(0, now_ms - stored_ms) / 1000)} ago"
    return Hop("store → page", behind, None, "The newest sum in the store; a sum is written when it changes.")
