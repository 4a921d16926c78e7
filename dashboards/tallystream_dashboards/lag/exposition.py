"""Lag in Prometheus' text format, with the names and labels that lag exporters use. Pure.

The names `kafka_consumergroup_group_*` and `kafka_partition_*` are those of kafka-lag-exporter's documentation, so that
its dashboards and alerts work. A value that is not known is left out: it is never NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.health.exposition import Family, Sample, render

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tallystream_dashboards.lag.offsets import Bounds, PartitionId
    from tallystream_dashboards.lag.state import GroupState, PartitionState
    from tallystream_dashboards.lag.time_lag import TimeLag

_GROUP = "kafka_consumergroup_group"


def exposition(states: Iterable[GroupState], bounds: Mapping[PartitionId, Bounds], ts_ms: int) -> str:
    """Return the text of `/metrics`: every group that is on the broker, its partitions, and every partition's ends.

    Groups that are gone have no samples. Stale groups and partitions have the samples of their last state. `ts_ms` is
    the time of the round, epoch ms.
    """
    groups = [state for state in states if not state.gone]
    newest = Family("tallystream_lag_round_time_seconds", "gauge", "Time of the newest round, in epoch seconds.", [])
    newest.samples.append(Sample(ts_ms / 1000, {}))
    return render([*_partitions(groups), *_groups(groups), *_bounds(bounds), newest])


def _partitions(groups: Sequence[GroupState]) -> list[Family]:
    lag, seconds, offset, bound = (
        Family(f"{_GROUP}_lag", "gauge", "Records after the committed offset.", []),
        Family(f"{_GROUP}_lag_seconds", "gauge", "Age of the oldest unconsumed record, seconds; or a lower bound.", []),
        Family(f"{_GROUP}_offset", "gauge", "The next offset that the group will read.", []),
        Family("tallystream_lag_seconds_bound", "gauge", "1 where the age of the partition is a lower bound.", []),
    )
    for group in groups:
        for one in group.partitions:
            labels = {"group": group.group, "topic": one.topic, "partition": str(one.partition)}
            if one.lag is not None:
                lag.samples.append(Sample(one.lag, labels))
                _add_time_lag(seconds, one.time_lag, labels)
            if one.committed is not None:
                offset.samples.append(Sample(one.committed, labels))
            if one.time_lag is not None and not one.time_lag.exact:
                bound.samples.append(Sample(1, labels))
    return [lag, seconds, offset, bound]


def _groups(groups: Sequence[GroupState]) -> list[Family]:
    largest, oldest, total, by_topic, status, members, stale = (
        Family(f"{_GROUP}_max_lag", "gauge", "The largest lag of the group's partitions.", []),
        Family(f"{_GROUP}_max_lag_seconds", "gauge", "The oldest unconsumed record of the group, seconds.", []),
        Family(f"{_GROUP}_sum_lag", "gauge", "The lag of the group's partitions together.", []),
        Family(f"{_GROUP}_topic_sum_lag", "gauge", "The lag of the group's partitions of a topic together.", []),
        Family("tallystream_group_status", "gauge", "1 for the status that the group has.", []),
        Family("tallystream_group_members", "gauge", "Members of the group.", []),
        Family("tallystream_group_stale", "gauge", "1 where not all of the group was read: the rest is older.", []),
    )
    for group in groups:
        labels = {"group": group.group}
        if group.lag is not None and group.max_lag is not None:
            largest.samples.append(Sample(group.max_lag, labels))
            total.samples.append(Sample(group.lag, labels))
            _add_time_lag(oldest, group.time_lag, labels)
        for topic, lag in _by_topic(group.partitions).items():
            by_topic.samples.append(Sample(lag, labels | {"topic": topic}))
        status.samples.append(Sample(1, labels | {"status": group.evaluation.status.name}))
        if group.members is not None:
            members.samples.append(Sample(group.members, labels))
        stale.samples.append(Sample(int(bool(group.stale)), labels))
    return [largest, oldest, total, by_topic, status, members, stale]


def _bounds(bounds: Mapping[PartitionId, Bounds]) -> list[Family]:
    earliest = Family("kafka_partition_earliest_offset", "gauge", "The first offset of the partition.", [])
    latest = Family("kafka_partition_latest_offset", "gauge", "The next offset that the partition will give.", [])
    for (topic, partition), (start, end) in sorted(bounds.items()):
        labels = {"topic": topic, "partition": str(partition)}
        earliest.samples.append(Sample(start, labels))
        latest.samples.append(Sample(end, labels))
    return [earliest, latest]


def _by_topic(partitions: Iterable[PartitionState]) -> dict[str, int]:
    lags: dict[str, int] = {}
    for one in partitions:
        if one.lag is not None:
            lags[one.topic] = lags.get(one.topic, 0) + one.lag
    return dict(sorted(lags.items()))


def _add_time_lag(family: Family, time_lag: TimeLag | None, labels: Mapping[str, str]) -> None:
    if time_lag is not None:
        family.samples.append(Sample(float(time_lag.seconds), labels))
