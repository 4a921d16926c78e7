"""The points that the collector writes in each round, how they are read, and the same as JSON. Pure.

There are five measurements: partitions of groups (`tallystream.lag`), ends of partitions, groups with their status,
rounds, and what became of the records of each consumer. A field has the name that it has in the state. A point that
equals its neighbours is not written, for at most 30 s.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any

from tallystream_aggregator.sinks.base import LAG_MEASUREMENTS, Field, Point
from tallystream_dashboards.lag.catch_up import CatchUp
from tallystream_dashboards.lag.changes import WAITS
from tallystream_dashboards.lag.samples import Rates
from tallystream_dashboards.lag.state import GroupState, PartitionState
from tallystream_dashboards.lag.status import Evaluation, Status
from tallystream_dashboards.lag.time_lag import TimeLag

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tallystream_dashboards.lag.offsets import Bounds, PartitionId

LAG, ENDS, GROUPS, ROUNDS, RECORDS = ALL = LAG_MEASUREMENTS

SLOT_MS = 300_000
"""Downsampled history has the first round of each slot of this length, in ms. All points of that round are written."""

_JUDGED = ("status", "reason", "changed_ms", *TimeLag._fields, *Rates._fields)
_OFFSETS = ("start", "end", "committed")
_PARTITION = ("lag", *_OFFSETS, "stale")
_GROUP = (
    *("lag", "max_lag", "partition_count", "unknown_partitions", "uncommitted_records", "members", "broker_state"),
    *("since_ms", "late_since_ms", "seen_ms", "gone", "stale"),
)
_partition_values, _group_values = attrgetter(*_PARTITION), attrgetter(*_GROUP)
PARTITION_FIELDS = (*_PARTITION, *_JUDGED, "last_ms", "waiting")
"""The fields of a partition's points."""
GROUP_FIELDS = (*_GROUP, *CatchUp._fields, *_JUDGED)
"""The fields of a group's points."""

Fields = dict[str, Field]


def group_json(state: GroupState, *, partitions: bool) -> dict[str, Any]:
    """Return a group as a JSON object, with its `partitions` or without. What is not known is null."""
    of_partitions = [
        {"topic": one.topic, "partition": one.partition, **_partition_fields(one)} for one in state.partitions
    ]
    return {"group": state.group, **_group_fields(state), **({"partitions": of_partitions} if partitions else {})}


def partition_point(group: str, state: PartitionState, ts_ms: int) -> Point:
    """Return one partition of one group as a point, without the fields that are not known.

    The point of a stale partition has no offsets, so it is not a sample. One that is OK has no reason, unless it is
    notable.
    """
    fields = _partition_fields(state)
    if state.stale:
        fields |= dict.fromkeys(_OFFSETS)
    elif state.evaluation.status is Status.OK and not state.evaluation.notable:
        fields["reason"] = None
    tags = {"group": group, "topic": state.topic, "partition": str(state.partition)}
    return Point(LAG, tags, _known(fields), ts_ms)


def group_point(state: GroupState, ts_ms: int) -> Point:
    """Return a group as a point, without the fields that are not known."""
    return Point(GROUPS, {"group": state.group}, _known(_group_fields(state)), ts_ms)


def ends_point(partition: PartitionId, bounds: Bounds, ts_ms: int) -> Point:
    """Return a partition's start and end as a point."""
    tags = {"topic": partition[0], "partition": str(partition[1])}
    return Point(ENDS, tags, {"start": bounds[0], "end": bounds[1]}, ts_ms)


def partition_of(topic: str, partition: int, fields: Mapping[str, Field]) -> PartitionState:
    """Return one partition of one group from the fields of its point."""
    lag = fields.get("lag")
    fields = {"reason": "" if lag is None else f"The lag is {lag:,}.", **fields}
    judged = _judged_of(fields)
    waiting = Status.__members__.get(str(fields.get("waiting")))
    if waiting is not None:
        reason = judged["evaluation"].reason.partition(f" {WAITS.format(waiting.name)}")[0]
        judged["waiting"] = Evaluation(waiting, reason)
    return PartitionState(topic, partition, **_stored(fields, _PARTITION), **judged)


def group_of(group: str, fields: Mapping[str, Field]) -> GroupState:
    """Return a group from the fields of its point, without its partitions."""
    catch_up = CatchUp(**_stored(fields, CatchUp._fields))
    return GroupState(group, catch_up=catch_up, **_stored({"seen_ms": 0, **fields}, _GROUP), **_judged_of(fields))


def _partition_fields(state: PartitionState) -> dict[str, Field | None]:
    fields = dict(zip(_PARTITION, _partition_values(state), strict=True))
    waiting = None if state.waiting is None else state.waiting.status.name
    return fields | _judged(state) | {"last_ms": state.evaluation.last_ms, "waiting": waiting}


def _group_fields(state: GroupState) -> dict[str, Field | None]:
    return dict(zip(_GROUP, _group_values(state), strict=True)) | state.catch_up._asdict() | _judged(state)


def _judged(state: PartitionState | GroupState) -> dict[str, Field | None]:
    return {
        "status": state.evaluation.status.name,
        "reason": state.evaluation.reason,
        "changed_ms": state.evaluation.changed_ms,
        **dict(zip(TimeLag._fields, state.time_lag or (None, None), strict=True)),
        **dict(zip(Rates._fields, state.rates or (None, None), strict=True)),
    }


def _judged_of(fields: Mapping[str, Field]) -> dict[str, Any]:
    status = Status.__members__.get(str(fields.get("status")), Status.NOTFOUND)
    return {
        "evaluation": Evaluation(status, str(fields.get("reason", "")), **_stored(fields, ("last_ms", "changed_ms"))),
        "time_lag": TimeLag(**_stored(fields, TimeLag._fields)) if "seconds" in fields else None,
        "rates": Rates(**_stored(fields, Rates._fields)) if fields.keys() >= set(Rates._fields) else None,
    }


def _stored(fields: Mapping[str, Field], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: fields[name] for name in names if name in fields}


def _known(fields: Mapping[str, Field | None]) -> Fields:
    """Return the fields without those that are not known, or have nothing to tell."""
    return {name: value for name, value in fields.items() if value is not None and value != ""}
