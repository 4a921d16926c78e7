"""Read the groups' states, now or at a moment of the past, from the collector's points in the store."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, TypeVar

from tallystream_dashboards.lag.catch_up import CatchUp
from tallystream_dashboards.lag.samples import MAX_GAP_MS, OffsetSample
from tallystream_dashboards.lag.state import (
    NOT_READ,
    GroupState,
    PartitionState,
    mark_partition_stale,
    mark_stale,
    worst_first,
    worst_partitions_first,
)
from tallystream_dashboards.lag.storage import (
    GROUP_FIELDS,
    GROUPS,
    LAG,
    PARTITION_FIELDS,
    ROUNDS,
    SLOT_MS,
    group_of,
    partition_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tallystream_aggregator.sinks.base import Field, PointReader, Series
    from tallystream_dashboards.lag.offsets import PartitionId
    from tallystream_dashboards.lag.storage import Fields

MAX_POINT_AGE_MS = SLOT_MS + MAX_GAP_MS
"""The newest point of a group is at most this old, in ms, also in downsampled history."""


def last_round_ms(reader: PointReader, *, at_ms: int) -> int | None:
    """Return the time of the newest round up to `at_ms`; None if there is none.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    rounds = reader.read(ROUNDS, ("groups",), start_ms=at_ms + 1, end_ms=at_ms + 2, last_before=True)
    return rounds[0].times_ms[0] if rounds and rounds[0].times_ms[0] <= at_ms else None


def read_groups(reader: PointReader, *, at_ms: int, group: str | None = None) -> list[GroupState]:
    """Return every group with its status at `at_ms`, worst first, without partitions, including those that are gone.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    tags = {"group": group} if group is not None else None
    round_ms = last_round_ms(reader, at_ms=at_ms)
    if round_ms is None:
        return []
    start_ms = round_ms - MAX_POINT_AGE_MS
    newest = _groups(reader.read(GROUPS, GROUP_FIELDS, start_ms=start_ms, end_ms=at_ms + 1, tags=tags))
    return worst_first(_state_at(round_ms, state, ts_ms) for state, ts_ms in newest.values())


def read_group(reader: PointReader, group: str, *, at_ms: int) -> GroupState | None:
    """Return one group with its partitions at `at_ms`, as the collector judged them; None if the store has none of it.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    state = next(iter(read_groups(reader, at_ms=at_ms, group=group)), None)
    if state is None or not state.partition_count:
        return state  # the points are of partitions that have been deleted
    # A round that read the group has a point of each partition, or has left it out for at most a gap.
    back_ms = MAX_POINT_AGE_MS if state.gone or state.stale else MAX_GAP_MS
    round_ms = last_round_ms(reader, at_ms=at_ms) or at_ms
    for until_ms in (state.seen_ms,) if state.gone else (round_ms, state.seen_ms):
        series = reader.read(
            LAG, PARTITION_FIELDS, start_ms=until_ms - back_ms, end_ms=until_ms + 1, tags={"group": group}
        )
        if series:
            break
    found = partitions(series, now_ms=until_ms).get(group, [])
    if state.stale == NOT_READ:
        found = [mark_partition_stale(one) for one in found]
    return replace(state, partitions=tuple(found))


_Key = TypeVar("_Key")


def _newest(series: Iterable[Series], key: Callable[[Mapping[str, str]], _Key]) -> dict[_Key, tuple[int, Fields]]:
    """Return the time and the fields of the newest point with each key, which is computed of the tags."""
    points: dict[_Key, dict[int, Fields]] = {}
    for one in series:
        points.setdefault(key(one.tags), {}).setdefault(one.times_ms[-1], {})[one.field] = one.values[-1]
    # A field that the newest point does not have is no longer valid.
    return {name: max(times.items(), key=itemgetter(0)) for name, times in points.items()}


def _groups(series: Iterable[Series]) -> dict[str, tuple[GroupState, int]]:
    """Return the newest state of each group and the time of its point."""
    newest = _newest(series, itemgetter("group"))
    return {group: (group_of(group, fields, ts_ms), ts_ms) for group, (ts_ms, fields) in newest.items()}


def partitions(series: Iterable[Series], *, now_ms: int | None = None) -> dict[str, list[PartitionState]]:
    """Return the newest state of each partition by group, worst first, with its time lag at `now_ms`.

    `series` are fields of the measurement `tallystream.lag`. A partition without a point in the group's newer rounds,
    of a deleted topic, is left out.
    """
    newest = _newest(series, itemgetter("group", "topic", "partition"))
    last_ms: dict[str, int] = {}
    for (group, _, _), (ts_ms, _) in newest.items():
        last_ms[group] = max(ts_ms, last_ms.get(group, 0))
    found: dict[str, list[PartitionState]] = {}
    for (group, topic, number), (ts_ms, fields) in newest.items():
        if last_ms[group] - ts_ms <= MAX_GAP_MS:
            state = partition_of(topic, int(number), fields)
            later_s = max(0, (now_ms or ts_ms) - ts_ms) / 1000
            state = replace(state, time_lag=state.time_lag and state.time_lag.after(later_s))
            found.setdefault(group, []).append(state)
    return {group: worst_partitions_first(states) for group, states in found.items()}


def _state_at(round_ms: int, state: GroupState, ts_ms: int) -> GroupState:
    """Return a group in the newest round, by its state in its newest point, at `ts_ms`."""
    if state.gone:
        return replace(state, catch_up=CatchUp.UNKNOWN, rates=None)
    if round_ms - ts_ms > MAX_GAP_MS:
        return mark_stale(state)
    # If only its time lag has changed, a group has no point in the newest rounds, although they have read it.
    later_s = max(0, round_ms - ts_ms) / 1000
    seen_ms = state.seen_ms if state.stale else max(round_ms, ts_ms)
    return replace(state, time_lag=state.time_lag and state.time_lag.after(later_s), seen_ms=seen_ms)


def samples(series: Iterable[Series]) -> dict[tuple[str, PartitionId], list[OffsetSample]]:
    """Return the samples by group and partition, in order of time."""
    fields: dict[tuple[str, PartitionId], dict[str, dict[int, Field]]] = {}
    for one in series:
        key = (one.tags["group"], (one.tags["topic"], int(one.tags["partition"])))
        fields.setdefault(key, {})[one.field] = dict(zip(one.times_ms, one.values, strict=True))
    found = {}
    for key, values in fields.items():
        ends, members = values.get("end", {}), values.get("members", {})
        found[key] = [
            OffsetSample(ts_ms, int(at), int(ends[ts_ms]), int(members[ts_ms]) if ts_ms in members else None)
            for ts_ms, at in values.get("committed", {}).items()
            if ts_ms in ends
        ]
    return found
