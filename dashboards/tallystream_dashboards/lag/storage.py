"""The points that the collector writes in each round, and how they are read. Pure.

There are four measurements: partitions of groups (`tallystream.lag`), ends of partitions, groups with their status, and
rounds. A point that equals its neighbours is not written, for at most 30 s; for a group that is gone, permanently.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.sinks.base import Field, Point
from tallystream_dashboards.lag.catch_up import Between, Drain, Drained, Never, NotKnown, Rates, Steady
from tallystream_dashboards.lag.model import LAG
from tallystream_dashboards.lag.state import GroupState, PartitionState
from tallystream_dashboards.lag.status import Evaluation, Rules, Status
from tallystream_dashboards.lag.time_lag import AtLeast, Exact, SecondsLag, Unknown, Zero

if TYPE_CHECKING:
    from collections.abc import Mapping

ENDS, GROUPS, ROUNDS = f"{LAG}.ends", f"{LAG}.groups", f"{LAG}.rounds"
ALL = (LAG, ENDS, GROUPS, ROUNDS)

GROUP_FIELDS = (
    *("lag", "max", "partitions", "unknown", "unread", "seconds", "bound", "produced", "consumed", "drain_low"),
    *("drain_high", "drain", "status", "reason", "since_ms", "members", "state", "gone", "skew_ms", "stale"),
    "seen_ms",
)
"""The fields of a group's points."""

RULES_FIELDS = ("window_s", "stop_after_s", "allowed_lag", "warn_age_s", "err_age_s")
"""The fields of a round's point that have the rules of its statuses."""

Fields = dict[str, Field]


def partition_point(group: str, state: PartitionState, members: int | None, ts_ms: int) -> Point:
    """Return one partition of one group as a point, without the fields that are not known.

    The point of a stale partition has no offsets, so it is not a sample.
    """
    sample: dict[str, Field | None] = {
        "committed": state.committed,
        "start": state.start,
        "end": state.end,
        "members": members,
        "record_ms": state.record_ms,
    }
    fields: dict[str, Field | None] = {
        **({"stale": True} if state.stale else sample),
        "lag": state.lag,
        "status": state.evaluation.status.name,
        "skew_ms": state.skew_ms,
        **_seconds_fields(state.seconds),
    }
    tags = {"group": group, "topic": state.topic, "partition": str(state.partition)}
    return Point(LAG, tags, _known(fields), ts_ms)


def group_point(state: GroupState, ts_ms: int) -> Point:
    """Return a group as a point."""
    drain = state.drain
    fields: dict[str, Field | None] = {
        "lag": state.lag,
        "max": state.worst_lag,
        "partitions": state.count,
        "unknown": state.unknown,
        "unread": state.unread,
        "produced": state.rates.produced if state.rates else None,
        "consumed": state.rates.consumed if state.rates else None,
        "drain": type(drain).__name__,
        "drain_low": float(drain.low_s) if isinstance(drain, Between) else None,
        "drain_high": float(drain.high_s) if isinstance(drain, Between) and drain.high_s is not None else None,
        "status": state.evaluation.status.name,
        "reason": state.evaluation.reason,
        "since_ms": state.since_ms,
        "members": state.members,
        "state": state.broker_state or None,
        "gone": state.gone,
        "skew_ms": state.skew_ms,
        "stale": state.stale or None,
        "seen_ms": state.seen_ms if state.stale else None,
        **_seconds_fields(state.seconds),
    }
    return Point(GROUPS, {"group": state.group}, _known(fields), ts_ms)


def ends_point(place: tuple[str, int], start: int, end: int, ts_ms: int) -> Point:
    """Return a partition's start and end as a point."""
    return Point(ENDS, {"topic": place[0], "partition": str(place[1])}, {"start": start, "end": end}, ts_ms)


def rules_fields(rules: Rules) -> Fields:
    """Return the rules as fields of a round's point, without those that are None."""
    chosen = _known({name: getattr(rules, name) for name in RULES_FIELDS})
    return {name: value if name == "allowed_lag" else float(value) for name, value in chosen.items()}


def rules_of(fields: Mapping[str, Field]) -> Rules:
    """Return the rules from the fields of a round's point, with defaults for missing fields."""
    return Rules(**{name: fields[name] for name in RULES_FIELDS if name in fields})  # type: ignore[arg-type]  # just so


def group_of(group: str, fields: Mapping[str, Field], seen_ms: int) -> GroupState:
    """Return a group from the fields of one of its points, without its partitions."""
    named = str(fields.get("status", ""))
    status = Status[named] if named in Status.__members__ else Status.NOTFOUND
    return GroupState(
        group=group,
        lag=_whole(fields, "lag"),
        seconds=_seconds(fields),
        rates=_rates(fields),
        drain=_drain(fields),
        evaluation=Evaluation(status, str(fields.get("reason", ""))),
        partitions=(),
        seen_ms=seen_ms,
        worst_lag=_whole(fields, "max"),
        count=_whole(fields, "partitions") or 0,
        unknown=_whole(fields, "unknown") or 0,
        unread=_whole(fields, "unread") or 0,
        members=_whole(fields, "members"),
        broker_state=str(fields.get("state", "")),
        since_ms=_whole(fields, "since_ms"),
        gone=bool(fields.get("gone", False)),
        logged_skew_ms=_whole(fields, "skew_ms"),
        stale=str(fields.get("stale", "")),
        logged_seen_ms=_whole(fields, "seen_ms"),
    )


def _seconds_fields(found: SecondsLag) -> dict[str, Field | None]:
    match found:
        case Zero():
            return {"seconds": 0.0, "bound": False}
        case Exact(seconds):
            return {"seconds": float(seconds), "bound": False}
        case AtLeast(seconds):
            return {"seconds": float(seconds), "bound": True}
    return {}


def _seconds(fields: Mapping[str, Field]) -> SecondsLag:
    seconds = fields.get("seconds")
    if not isinstance(seconds, int | float):
        return Unknown("the collector had not seen it")
    if fields.get("bound"):
        return AtLeast(float(seconds))
    return Exact(float(seconds)) if seconds > 0 else Zero()


def _rates(fields: Mapping[str, Field]) -> Rates | None:
    produced, consumed = fields.get("produced"), fields.get("consumed")
    if not isinstance(produced, int | float) or not isinstance(consumed, int | float):
        return None
    return Rates(float(produced), float(consumed))


def _drain(fields: Mapping[str, Field]) -> Drain:
    low, high = fields.get("drain_low"), fields.get("drain_high")
    if isinstance(low, int | float):
        return Between(float(low), float(high) if isinstance(high, int | float) else None)
    known: dict[str, Drain] = {"Drained": Drained(), "Never": Never(), "Steady": Steady()}
    return known.get(str(fields.get("drain")), NotKnown())


def _whole(fields: Mapping[str, Field], name: str) -> int | None:
    value = fields.get(name)
    return int(value) if isinstance(value, int | float) else None


def _known(fields: Mapping[str, Field | None]) -> Fields:
    return {name: value for name, value in fields.items() if value is not None}
