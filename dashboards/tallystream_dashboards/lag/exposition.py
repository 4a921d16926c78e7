"""Lag in Prometheus' text format, with the names and labels that lag exporters use. Pure.

The names `kafka_consumergroup_group_*` and `kafka_partition_*` are those of kafka-lag-exporter's documentation, so that
its dashboards and alerts work. A value that is not known is left out: it is never NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.health.exposition import Family, Sample, render
from tallystream_dashboards.lag.time_lag import AtLeast, Unknown, at_least

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tallystream_dashboards.lag.state import GroupState, PartitionState
    from tallystream_dashboards.lag.time_lag import SecondsLag

_GROUP = "kafka_consumergroup_group"


def exposition(states: Iterable[GroupState], places: Mapping[tuple[str, int], tuple[int, int]], ts_ms: int) -> str:
    """Return the text of `/metrics`: every group that is on the broker, its partitions, and every partition's ends.

    Groups that are gone have no samples. Stale groups and partitions have the samples of their last state. `ts_ms` is
    the time of the round, epoch ms.
    """
    groups = [state for state in states if not state.gone]
    looked = Family("tallystream_lag_round_time_seconds", "gauge", "Time of the newest round, in epoch seconds.", [])
    looked.samples.append(Sample(ts_ms / 1000, {}))
    return render([*_partitions(groups), *_groups(groups), *_ends(places), looked])


def _partitions(groups: Sequence[GroupState]) -> list[Family]:
    lag, seconds, offset, bound, skew = (
        Family(f"{_GROUP}_lag", "gauge", "Records after the committed offset.", []),
        Family(f"{_GROUP}_lag_seconds", "gauge", "Age of the oldest unconsumed record, seconds; or a lower bound.", []),
        Family(f"{_GROUP}_offset", "gauge", "The next offset that the group will read.", []),
        Family("tallystream_lag_seconds_bound", "gauge", "1 where the age of the partition is a lower bound.", []),
        Family("tallystream_lag_skew_seconds", "gauge", "Seconds that timestamps are ahead of their arrival.", []),
    )
    for group in groups:
        for one in group.partitions:
            labels = {"group": group.group, "topic": one.topic, "partition": str(one.partition)}
            if one.lag is not None:
                lag.samples.append(Sample(one.lag, labels))
                _add_seconds(seconds, one.seconds, labels)
            if one.committed is not None:
                offset.samples.append(Sample(one.committed, labels))
            if isinstance(one.seconds, AtLeast):
                bound.samples.append(Sample(1, labels))
            if one.skew_ms is not None:
                skew.samples.append(Sample(one.skew_ms / 1000, labels))
    return [lag, seconds, offset, bound, skew]


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
        if group.lag is not None and group.worst_lag is not None:
            largest.samples.append(Sample(group.worst_lag, labels))
            total.samples.append(Sample(group.lag, labels))
            _add_seconds(oldest, group.seconds, labels)
        for topic, lag in _by_topic(group.partitions).items():
            by_topic.samples.append(Sample(lag, labels | {"topic": topic}))
        status.samples.append(Sample(1, labels | {"status": group.evaluation.status.name}))
        if group.members is not None:
            members.samples.append(Sample(group.members, labels))
        stale.samples.append(Sample(int(bool(group.stale)), labels))
    return [largest, oldest, total, by_topic, status, members, stale]


def _ends(places: Mapping[tuple[str, int], tuple[int, int]]) -> list[Family]:
    earliest = Family("kafka_partition_earliest_offset", "gauge", "The first offset of the partition.", [])
    latest = Family("kafka_partition_latest_offset", "gauge", "The next offset that the partition will give.", [])
    for (topic, partition), (start, end) in sorted(places.items()):
        labels = {"topic": topic, "partition": str(partition)}
        earliest.samples.append(Sample(start, labels))
        latest.samples.append(Sample(end, labels))
    return [earliest, latest]


def _by_topic(partitions: Iterable[PartitionState]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in partitions:
        if one.lag is not None:
            found[one.topic] = found.get(one.topic, 0) + one.lag
    return dict(sorted(found.items()))


def _add_seconds(family: Family, seconds: SecondsLag, labels: Mapping[str, str]) -> None:
    if not isinstance(seconds, Unknown):
        family.samples.append(Sample(float(at_least(seconds)), labels))
