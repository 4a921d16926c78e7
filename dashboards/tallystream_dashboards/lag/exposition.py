"""Lag in Prometheus' text format, with the names and labels that lag exporters use. Pure.

The names `kafka_consumergroup_group_*` and `kafka_partition_*` are those of kafka-lag-exporter's documentation, so that
its dashboards and alerts work. A value that is not known is left out: it is never NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.metrics_core import GaugeMetricFamily

from tallystream_aggregator.health.server import Response, metrics_response

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tallystream_dashboards.lag.offsets import Bounds, PartitionId
    from tallystream_dashboards.lag.state import GroupState, PartitionState
    from tallystream_dashboards.lag.time_lag import TimeLag

_GROUP = "kafka_consumergroup_group"


def exposition(states: Iterable[GroupState], bounds: Mapping[PartitionId, Bounds], ts_ms: int) -> Response:
    """Return the answer to `/metrics`: every group that is on the broker, its partitions, and every partition's ends.

    Groups that are gone have no samples. Stale groups and partitions have the samples of their last state. `ts_ms` is
    the time of the round, epoch ms.
    """
    groups = [state for state in states if not state.gone]
    newest = _Gauge("tallystream_lag_round_time_seconds", "Time of the newest round, in epoch seconds.", labels=[])
    newest.add([], ts_ms / 1000)
    return metrics_response([*_partitions(groups), *_groups(groups), *_bounds(bounds), newest])


class _Gauge(GaugeMetricFamily):
    """A family of gauges without values that are not known."""

    def add(self, labels: Sequence[str], value: float | None) -> None:
        """Add a value, if it is known."""
        if value is not None:
            self.add_metric(labels, value)


def _partitions(groups: Sequence[GroupState]) -> list[_Gauge]:
    by = ["group", "topic", "partition"]
    lag = _Gauge(f"{_GROUP}_lag", "Records after the committed offset.", labels=by)
    age = "Age of the oldest unconsumed record, seconds; or a lower bound."
    seconds = _Gauge(f"{_GROUP}_lag_seconds", age, labels=by)
    offset = _Gauge(f"{_GROUP}_offset", "The next offset that the group will read.", labels=by)
    bound = _Gauge("tallystream_lag_seconds_bound", "1 where the age of the partition is a lower bound.", labels=by)
    for group in groups:
        for one in group.partitions:
            labels = [group.group, one.topic, str(one.partition)]
            lag.add(labels, one.lag)
            seconds.add(labels, None if one.lag is None else _seconds(one.time_lag))
            offset.add(labels, one.committed)
            bound.add(labels, None if one.time_lag is None or one.time_lag.exact else 1)
    return [lag, seconds, offset, bound]


def _groups(groups: Sequence[GroupState]) -> list[_Gauge]:
    by = ["group"]
    largest = _Gauge(f"{_GROUP}_max_lag", "The largest lag of the group's partitions.", labels=by)
    oldest = _Gauge(f"{_GROUP}_max_lag_seconds", "The oldest unconsumed record of the group, seconds.", labels=by)
    total = _Gauge(f"{_GROUP}_sum_lag", "The lag of the group's partitions together.", labels=by)
    of_topic = "The lag of the group's partitions of a topic together."
    by_topic = _Gauge(f"{_GROUP}_topic_sum_lag", of_topic, labels=["group", "topic"])
    status = _Gauge("tallystream_group_status", "1 for the status that the group has.", labels=["group", "status"])
    members = _Gauge("tallystream_group_members", "Members of the group.", labels=by)
    stale = _Gauge("tallystream_group_stale", "1 where not all of the group was read: the rest is older.", labels=by)
    for group in groups:
        if group.lag is not None and group.max_lag is not None:
            largest.add([group.group], group.max_lag)
            oldest.add([group.group], _seconds(group.time_lag))
            total.add([group.group], group.lag)
        for topic, lag in _by_topic(group.partitions).items():
            by_topic.add([group.group, topic], lag)
        status.add([group.group, group.evaluation.status.name], 1)
        members.add([group.group], group.members)
        stale.add([group.group], int(bool(group.stale)))
    return [largest, oldest, total, by_topic, status, members, stale]


def _bounds(bounds: Mapping[PartitionId, Bounds]) -> list[_Gauge]:
    by = ["topic", "partition"]
    earliest = _Gauge("kafka_partition_earliest_offset", "The first offset of the partition.", labels=by)
    latest = _Gauge("kafka_partition_latest_offset", "The next offset that the partition will give.", labels=by)
    for (topic, partition), (start, end) in sorted(bounds.items()):
        earliest.add([topic, str(partition)], start)
        latest.add([topic, str(partition)], end)
    return [earliest, latest]


def _by_topic(partitions: Iterable[PartitionState]) -> dict[str, int]:
    lags: dict[str, int] = {}
    for one in partitions:
        if one.lag is not None:
            lags[one.topic] = lags.get(one.topic, 0) + one.lag
    return dict(sorted(lags.items()))


def _seconds(time_lag: TimeLag | None) -> float | None:
    return None if time_lag is None else time_lag.seconds
