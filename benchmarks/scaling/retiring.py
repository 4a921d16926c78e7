"""A topic on which fleets have reported and gone: each reported an hour and more before the next.

The records have the times that a broker would have given them then: the topic takes a producer's times while it is
filled, and gives its own from then on, as the aggregator requires.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from benchmarks.aggregator.load import Fleet, Snapshots, Updates
from benchmarks.aggregator.topic import admin, preload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

GROUP = 1000
"""Lives that report together: as many as retire in one batch at most."""
RETIRE_AFTER_H = 1.0
APART_MS = 65 * 60_000
"""Longer than `RETIRE_AFTER_H`: when one group reports, the one before retires."""


class Group(NamedTuple):
    """Instances that reported once, at `at_ms`: their records, and what these add up to by metric."""

    at_ms: int
    records: list[tuple[bytes, bytes]]
    sums: NDArray[np.int64]


def groups(lives: int, metrics: int, now_ms: int) -> Iterator[Group]:
    """Yield so many lives in groups, the last one of them `APART_MS` before `now_ms`."""
    many = -(-lives // GROUP)
    for number in range(many):
        at_ms = now_ms - (many - number) * APART_MS
        fleet = Fleet(min(GROUP, lives - number * GROUP), metrics, prefix=f"gone-{number}-", seed=number)
        updates = Updates(fleet)
        yield Group(at_ms, list(Snapshots(fleet, at_ms).render(updates.take(fleet.rows))), updates.sums)


def publish_retired(bootstrap_servers: str, topic: str, lives: int, metrics: int) -> NDArray[np.int64]:
    """Publish one snapshot each of so many lives, and return the sums by metric."""
    sums = np.zeros(metrics, np.int64)
    set_timestamps(bootstrap_servers, topic, "CreateTime")
    for group in groups(lives, metrics, int(time.time() * 1000)):
        preload(bootstrap_servers, topic, group.records, timestamp_ms=group.at_ms)
        sums += group.sums
    set_timestamps(bootstrap_servers, topic, "LogAppendTime")
    return sums


def set_timestamps(bootstrap_servers: str, topic: str, kind: str) -> None:
    """Say whose times the records that a topic is given from now on have; those that it has keep theirs."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entry = ConfigEntry("message.timestamp.type", kind, incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(entry)
    client = admin(bootstrap_servers)  # it has to be there until the answer is
    client.incremental_alter_configs([resource])[resource].result(30)
