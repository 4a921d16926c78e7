"""Read the groups' states, now or at a moment of the past, from the collector's points in the store."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from tallystream_dashboards.lag.samples import MAX_GAP_MS, OffsetSample
from tallystream_dashboards.lag.state import GroupState, PartitionState, worst_first, worst_partitions_first
from tallystream_dashboards.lag.storage import (
    GROUP_FIELDS,
    GROUPS,
    LAG,
    PARTITION_FIELDS,
    ROUNDS,
    group_of,
    partition_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tallystream_aggregator.sinks.base import PointReader, Series
    from tallystream_dashboards.lag.offsets import PartitionId
    from tallystream_dashboards.lag.storage import Fields
    from tallystream_dashboards.lag.time_lag import TimeLag


PARTITION = ("group", "topic", "partition")
"""The tags of the points of a group in a partition."""


MAX_DIGITS = 10
"""The digits of a partition's number, which has 32 bits."""


def last_round_ms(reader: PointReader, *, at_ms: int) -> int | None:
    """Return the time of the newest round up to `at_ms`; None if there is none.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    rounds = list(own(reader.read(ROUNDS, ("groups",), start_ms=at_ms + 1, end_ms=at_ms + 2, last_before=True)))
    return rounds[0].times_ms[0] if rounds and 0 <= rounds[0].times_ms[0] <= at_ms else None


def read_groups(
    reader: PointReader, *, at_ms: int, group: str | None = None, fields: Sequence[str] = GROUP_FIELDS
) -> list[GroupState]:
    """Return every group with its status at `at_ms`, worst first, without partitions, including those that are gone.

    Only `fields` are read, one of which has every point: `gone` or `stale`.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    round_ms = last_round_ms(reader, at_ms=at_ms)
    if round_ms is None:
        return []
    states = []
    series = reader.read(GROUPS, fields, **_round(round_ms, group))
    for (name,), ts_ms, point in _newest(series, "group"):
        state = group_of(name, point)
        # A group of which only the time lag has changed has no point in the newest rounds, although they have read it.
        seen_ms = state.seen_ms if state.stale or state.gone else round_ms
        states.append(replace(state, time_lag=_later(state.time_lag, round_ms - ts_ms), seen_ms=seen_ms))
    return worst_first(states)


def read_group(reader: PointReader, group: str, *, at_ms: int) -> GroupState | None:
    """Return one group with its partitions at `at_ms`, as the collector judged them; None if the store has none of it.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    round_ms = last_round_ms(reader, at_ms=at_ms) or at_ms  # a round may end between the two requests
    states = read_groups(reader, at_ms=round_ms, group=group)
    if not states or states[0].gone or not states[0].partition_count:
        return states[0] if states else None  # points that are there are of partitions that have been deleted
    return replace(states[0], partitions=tuple(read_partitions(reader, at_ms=round_ms, group=group).get(group, ())))


def read_partitions(
    reader: PointReader, *, at_ms: int, group: str | None = None, fields: Sequence[str] = PARTITION_FIELDS
) -> dict[str, list[PartitionState]]:
    """Return the partitions of every group at `at_ms`, worst first. Of `fields`, as of groups, every point has `stale`.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    round_ms = last_round_ms(reader, at_ms=at_ms) or at_ms
    series = reader.read(LAG, fields, **_round(round_ms, group))
    found: dict[str, list[PartitionState]] = {}
    for (name, topic, number), ts_ms, point in _newest(series, *PARTITION):
        state = partition_of(topic, int(number), point)
        later = replace(state, time_lag=_later(state.time_lag, round_ms - ts_ms))
        found.setdefault(name, []).append(later)
    return {name: worst_partitions_first(states) for name, states in found.items()}


def read_samples(
    reader: PointReader, *, start_ms: int, end_ms: int
) -> dict[tuple[str, PartitionId], list[OffsetSample]]:
    """Return the samples by group and partition, in order of time.

    Raises:
        SinkUnavailableError: the store does not answer.
    """
    fields: dict[tuple[str, PartitionId], dict[str, dict[int, int]]] = {}
    for one in own(reader.read(LAG, ("committed", "end"), start_ms=start_ms, end_ms=end_ms), *PARTITION):
        key = (one.tags["group"], (one.tags["topic"], int(one.tags["partition"])))
        fields.setdefault(key, {})[one.field] = offsets(one)
    return {
        key: [
            OffsetSample(ts_ms, at, values["end"][ts_ms])
            for ts_ms, at in values.get("committed", {}).items()
            if ts_ms in values.get("end", {})
        ]
        for key, values in fields.items()
    }


def offsets(series: Series) -> dict[int, int]:
    """Return offsets by their time, in order. Others than whole numbers are somebody else's."""
    return {ts: at for ts, at in zip(series.times_ms, series.values, strict=True) if isinstance(at, int)}


def own(series: Iterable[Series], *tags: str) -> Iterator[Series]:
    """Yield the series that have the collector's tags: a metric of an application may have the name of its points."""
    for one in series:
        partition = one.tags.get("partition", "0")
        if one.tags.keys() == set(tags) and partition.isdecimal() and len(partition) <= MAX_DIGITS:
            yield one


def _newest(series: Iterable[Series], *tags: str) -> Iterator[tuple[tuple[str, ...], int, Fields]]:
    """Yield, of the points with each combination of tags, the time and the fields of the newest one."""
    points: dict[tuple[str, ...], dict[int, Fields]] = {}
    for one in own(series, *tags):
        key = tuple(one.tags[tag] for tag in tags)
        points.setdefault(key, {}).setdefault(one.times_ms[-1], {})[one.field] = one.values[-1]
    # A field that the newest point does not have is no longer valid.
    for key, times in points.items():
        yield key, *max(times.items(), key=itemgetter(0))


def _round(round_ms: int, group: str | None) -> dict[str, Any]:
    """Return what to read of a round: it has a point of each series, or has left it out for at most a gap."""
    tags = None if group is None else {"group": group}
    return {"start_ms": round_ms - MAX_GAP_MS, "end_ms": round_ms + 1, "tags": tags, "newest": True}


def _later(time_lag: TimeLag | None, later_ms: int) -> TimeLag | None:
    """Return a time lag as of a later round. Points in which only that has changed are not written."""
    return None if time_lag is None else time_lag.after(later_ms / 1000)
