"""Lag in Prometheus' text format, with the names and labels that lag exporters use. Pure.

The names `kafka_consumergroup_group_*` and `kafka_partition_*` are those of kafka-lag-exporter's documentation, so that
its dashboards and alerts work. A value that is not known is left out: it is never NaN.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from prometheus_client import Metric

from tallystream_aggregator.http_server import Response, metrics_response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tallystream_aggregator.sinks.base import Point
    from tallystream_dashboards.lag.offsets import Bounds, PartitionId
    from tallystream_dashboards.lag.state import GroupState, PartitionState
    from tallystream_dashboards.lag.time_lag import TimeLag

_GROUP = "kafka_consumergroup_group"
One = TypeVar("One")

_OF_PARTITION: list[tuple[str, str, Callable[[PartitionState], float | None]]] = [
    (f"{_GROUP}_lag", "Records after the committed offset.", lambda one: one.lag),
    (
        f"{_GROUP}_lag_seconds",
        "Age of the oldest unconsumed record, seconds; or a lower bound.",
        lambda one: None if one.lag is None else _seconds(one.time_lag),
    ),
    (f"{_GROUP}_offset", "The next offset that the group will read.", lambda one: one.committed),
    (
        "tallystream_lag_seconds_bound",
        "1 where the age of the partition is a lower bound.",
        lambda one: None if one.time_lag is None or one.time_lag.exact else 1,
    ),
]
_OF_GROUP: list[tuple[str, str, Callable[[GroupState], float | None]]] = [
    (f"{_GROUP}_max_lag", "The largest lag of the group's partitions.", lambda group: group.max_lag),
    (
        f"{_GROUP}_max_lag_seconds",
        "The oldest unconsumed record of the group, seconds.",
        lambda group: _seconds(group.time_lag),
    ),
    (f"{_GROUP}_sum_lag", "The lag of the group's partitions together.", lambda group: group.lag),
    ("tallystream_group_members", "Members of the group.", lambda group: group.members),
    (
        "tallystream_group_stale",
        "1 where not all of the group was read: the rest is older.",
        lambda group: int(bool(group.stale)),
    ),
]
_OF_ENDS: list[tuple[str, str, Callable[[Bounds], float | None]]] = [
    ("kafka_partition_earliest_offset", "The first offset of the partition.", lambda ends: ends[0]),
    ("kafka_partition_latest_offset", "The next offset that the partition will give.", lambda ends: ends[1]),
]


def exposition(
    states: Iterable[GroupState],
    bounds: Mapping[PartitionId, Bounds],
    ts_ms: int,
    records: Iterable[Point] = (),
) -> Response:
    """Return the answer to `/metrics`: every group that is on the broker, its partitions, and every partition's ends.

    Groups that are gone have no samples. Stale groups and partitions have the samples of their last state. `ts_ms` is
    the time of the round, epoch ms. `records` tell what became of the records of each consumer.
    """
    groups = [({"group": state.group}, state) for state in states if not state.gone]
    partitions = [
        (of_group | {"topic": one.topic, "partition": str(one.partition)}, one)
        for of_group, group in groups
        for one in group.partitions
    ]
    topics: Counter[tuple[str, str]] = Counter()
    for labels, one in partitions:
        if one.lag is not None:
            topics[labels["group"], one.topic] += one.lag
    by_topic = [({"group": group, "topic": topic}, lag) for (group, topic), lag in topics.items()]
    status = [(labels | {"status": group.evaluation.status.name}, 1) for labels, group in groups]
    ends = [({"topic": topic, "partition": str(number)}, bounds[topic, number]) for topic, number in sorted(bounds)]
    numbers = [({**one.tags, "number": name}, value) for one in records for name, value in one.fields.items()]
    of_topic = "The lag of the group's partitions of a topic together."
    of_records = "Records of a consumer, by what became of them."
    of_round = "Time of the newest round, in epoch seconds."
    return metrics_response(
        [
            *(_gauge(*gauge, partitions) for gauge in _OF_PARTITION),
            *(_gauge(*gauge, groups) for gauge in _OF_GROUP),
            _gauge(f"{_GROUP}_topic_sum_lag", of_topic, float, by_topic),
            _gauge("tallystream_group_status", "1 for the status that the group has.", float, status),
            *(_gauge(*gauge, ends) for gauge in _OF_ENDS),
            _gauge("tallystream_records", of_records, float, numbers),
            _gauge("tallystream_lag_round_time_seconds", of_round, float, [({}, ts_ms / 1000)]),
        ]
    )


def _gauge(
    name: str, help_: str, value_of: Callable[[One], float | None], found: Iterable[tuple[dict[str, str], One]]
) -> Metric:
    """Return a family of gauges, without the values that are not known."""
    family = Metric(name, help_, "gauge")
    for labels, one in found:
        value = value_of(one)
        if value is not None:
            family.add_sample(name, labels, value)
    return family


def _seconds(time_lag: TimeLag | None) -> float | None:
    return None if time_lag is None else time_lag.seconds
