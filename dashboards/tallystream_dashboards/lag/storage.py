"""The points that the collector writes in each round, and how they are read. Pure.

There are four measurements: partitions of groups (`tallystream.lag`), ends of partitions, groups with their status, and
rounds. A point that equals its neighbours is not written, for at most 30 s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.sinks.base import LAG_MEASUREMENTS, Field, Point
from tallystream_dashboards.lag.catch_up import Between, CatchUp, TimeToCatchUp
from tallystream_dashboards.lag.formatting import catches_up_in
from tallystream_dashboards.lag.samples import Rates
from tallystream_dashboards.lag.state import GroupState, PartitionState
from tallystream_dashboards.lag.status import Evaluation, Status
from tallystream_dashboards.lag.time_lag import TimeLag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_dashboards.lag.offsets import Bounds, PartitionId

LAG, ENDS, GROUPS, ROUNDS = ALL = LAG_MEASUREMENTS

SLOT_MS = 300_000
"""Downsampled history has the first round of each slot of this length, in ms. All points of that round are written."""

PARTITION_FIELDS = (
    *("committed", "end", "start", "members", "lag", "seconds", "bound", "produced", "consumed", "status", "reason"),
    "stale",
)
"""The fields of a partition's points."""

GROUP_FIELDS = (
    *("lag", "max", "partitions", "unknown", "unread", "seconds", "bound", "produced", "consumed", "drain_low"),
    *("drain_high", "drain", "status", "reason", "since_ms", "members", "state", "gone", "stale"),
    "seen_ms",
)
"""The fields of a group's points."""

Fields = dict[str, Field]


def partition_point(group: str, state: PartitionState, members: int | None, ts_ms: int) -> Point:
    """Return one partition of one group as a point, without the fields that are not known.

    The point of a stale partition has no offsets, so it is not a sample. One that is OK has no reason, unless it is
    notable.
    """
    sample: dict[str, Field | None] = {
        "committed": state.committed,
        "start": state.start,
        "end": state.end,
        "members": members,
    }
    evaluation = state.evaluation
    has_reason = state.stale or evaluation.notable or evaluation.status is not Status.OK
    fields: dict[str, Field | None] = {
        **({"stale": True} if state.stale else sample),
        "lag": state.lag,
        "produced": state.rates.produced if state.rates else None,
        "consumed": state.rates.consumed if state.rates else None,
        "status": evaluation.status.name,
        "reason": evaluation.reason if has_reason else None,
        **_time_lag_fields(state.time_lag),
    }
    tags = {"group": group, "topic": state.topic, "partition": str(state.partition)}
    return Point(LAG, tags, _known(fields), ts_ms)


def group_point(state: GroupState, ts_ms: int) -> Point:
    """Return a group as a point."""
    catch_up, rates = state.catch_up, state.rates
    low_s, high_s = (catch_up.low_s, catch_up.high_s) if isinstance(catch_up, Between) else (None, None)
    fields: dict[str, Field | None] = {
        "lag": state.lag,
        "max": state.max_lag,
        "partitions": state.partition_count,
        "unknown": state.unknown_partitions,
        "unread": state.uncommitted_records,
        "produced": rates.produced if rates else None,
        "consumed": rates.consumed if rates else None,
        "drain": catches_up_in(catch_up),
        "drain_low": None if low_s is None else float(low_s),
        "drain_high": None if high_s is None else float(high_s),
        "status": state.evaluation.status.name,
        "reason": state.evaluation.reason,
        "since_ms": state.since_ms,
        "members": state.members,
        "state": state.broker_state or None,
        "gone": state.gone,
        "stale": state.stale or None,
        "seen_ms": state.seen_ms if state.stale or state.gone else None,
        **_time_lag_fields(state.time_lag),
    }
    return Point(GROUPS, {"group": state.group}, _known(fields), ts_ms)


def ends_point(partition: PartitionId, bounds: Bounds, ts_ms: int) -> Point:
    """Return a partition's start and end as a point."""
    tags = {"topic": partition[0], "partition": str(partition[1])}
    return Point(ENDS, tags, {"start": bounds[0], "end": bounds[1]}, ts_ms)


def partition_of(topic: str, partition: int, fields: Mapping[str, Field]) -> PartitionState:
    """Return one partition of one group from the fields of its point."""
    lag = _int(fields, "lag")
    reason = str(fields.get("reason", f"The lag is {lag:,}." if lag is not None else ""))
    return PartitionState(
        topic=topic,
        partition=partition,
        lag=lag,
        time_lag=time_lag_of(fields.get("seconds"), fields.get("bound")),
        rates=_rates(fields),
        evaluation=Evaluation(status_of(fields.get("status")), reason),
        start=_int(fields, "start"),
        end=_int(fields, "end"),
        committed=_int(fields, "committed"),
        stale=bool(fields.get("stale", False)),
    )


def group_of(group: str, fields: Mapping[str, Field], ts_ms: int) -> GroupState:
    """Return a group from the fields of its point at `ts_ms`, without its partitions."""
    return GroupState(
        group=group,
        lag=_int(fields, "lag"),
        time_lag=time_lag_of(fields.get("seconds"), fields.get("bound")),
        rates=_rates(fields),
        catch_up=_catch_up(fields),
        evaluation=Evaluation(status_of(fields.get("status")), str(fields.get("reason", ""))),
        partitions=(),
        seen_ms=_int(fields, "seen_ms") or ts_ms,
        max_lag=_int(fields, "max"),
        partition_count=_int(fields, "partitions") or 0,
        unknown_partitions=_int(fields, "unknown") or 0,
        uncommitted_records=_int(fields, "unread") or 0,
        members=_int(fields, "members"),
        broker_state=str(fields.get("state", "")),
        since_ms=_int(fields, "since_ms"),
        gone=bool(fields.get("gone", False)),
        stale=str(fields.get("stale", "")),
    )


def time_lag_of(seconds: Field | None, bound: Field | None) -> TimeLag | None:
    """Return a time lag from its two fields; None if it is not known."""
    return TimeLag(float(seconds), exact=not bound) if isinstance(seconds, int | float) else None


def status_of(name: Field | None) -> Status:
    """Return the status with this name; NOTFOUND if there is none."""
    return Status.__members__.get(str(name), Status.NOTFOUND)


def _time_lag_fields(time_lag: TimeLag | None) -> Fields:
    return {} if time_lag is None else {"seconds": float(time_lag.seconds), "bound": not time_lag.exact}


def _rates(fields: Mapping[str, Field]) -> Rates | None:
    produced, consumed = fields.get("produced"), fields.get("consumed")
    if not isinstance(produced, int | float) or not isinstance(consumed, int | float):
        return None
    return Rates(float(produced), float(consumed))


def _catch_up(fields: Mapping[str, Field]) -> TimeToCatchUp:
    low, high = fields.get("drain_low"), fields.get("drain_high")
    if isinstance(low, int | float):
        return Between(float(low), float(high) if isinstance(high, int | float) else None)
    shown = fields.get("drain")
    return next((one for one in CatchUp if one == shown), CatchUp.UNKNOWN)


def _int(fields: Mapping[str, Field], name: str) -> int | None:
    value = fields.get(name)
    return int(value) if isinstance(value, int | float) else None


def _known(fields: Mapping[str, Field | None]) -> Fields:
    return {name: value for name, value in fields.items() if value is not None}
