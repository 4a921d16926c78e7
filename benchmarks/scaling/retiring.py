"""Publishes the records of fleets that have retired. Each fleet reported more than an hour before the next.

The records have the timestamps of that time: the topic has CreateTime while it is filled, and then LogAppendTime, as
the aggregator requires.
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
"""Lives that report together. It is the maximum number that retires in one batch."""
RETIRE_AFTER_H = 1.0
APART_MS = 65 * 60_000
"""Longer than `RETIRE_AFTER_H`: when a group reports, the previous one retires."""


class Group(NamedTuple):
    """Instances that reported once, at `at_ms`: their records, and the sums by metric."""

    at_ms: int
    records: list[tuple[bytes, bytes]]
    sums: NDArray[np.int64]


def groups(lives: int, metrics: int, now_ms: int) -> Iterator[Group]:
    """Yield `lives` lives in groups. The last group reported `APART_MS` before `now_ms`."""
    count = -(-lives // GROUP)
    for number in range(count):
        at_ms = now_ms - (count - number) * APART_MS
        fleet = Fleet(min(GROUP, lives - number * GROUP), metrics, prefix=f"gone-{number}-", seed=number)
        updates = Updates(fleet)
        yield Group(at_ms, list(Snapshots(fleet, at_ms).render(updates.take(fleet.rows))), updates.sums)


def publish_retired(bootstrap_servers: str, topic: str, lives: int, metrics: int) -> NDArray[np.int64]:
    """Publish one snapshot for each of `lives` lives. Return the sums by metric."""
    sums = np.zeros(metrics, np.int64)
    set_timestamps(bootstrap_servers, topic, "CreateTime")
    for group in groups(lives, metrics, int(time.time() * 1000)):
        preload(bootstrap_servers, topic, group.records, timestamp_ms=group.at_ms)
        sums += group.sums
    set_timestamps(bootstrap_servers, topic, "LogAppendTime")
    return sums


def set_timestamps(bootstrap_servers: str, topic: str, kind: str) -> None:
    """Set `message.timestamp.type` of a topic. It applies to records that are published later."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    entry = ConfigEntry("message.timestamp.type", kind, incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(entry)
    client = admin(bootstrap_servers)  # it has to exist until the response arrives
    client.incremental_alter_configs([resource])[resource].result(30)
