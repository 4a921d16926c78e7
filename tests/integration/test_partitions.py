"""A topic `metrics` with several partitions and apps, to which partitions are added."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import NewPartitions

from support.aggregator import Aggregator
from support.exactness import assert_as_acknowledged, assert_exact
from support.fleet import Fleet, Shares
from support.kafka import end_offsets
from support.wait import wait_until
from tallystream_aggregator.kafka.topics import Topics, create_topics

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_partitions_that_are_added_are_picked_up_by_a_running_aggregator(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """When three partitions become five under load, without a restart, sums agree with replay and journals."""
    topics = Topics(topic_prefix)
    create_topics(admin, topics, partitions=3)
    # While partitions are added, an instance can move to another one. Its tombstone then does not remove its records
    # in the old partition: see docs/table.md.
    shares = Shares(tombstone=0)
    servers = broker.bootstrap_servers
    before = [Fleet(servers, topics.metrics, 8, app=app, shares=shares) for app in ("orders", "stock")]
    for fleet in before:
        fleet.publish(150)
    with Aggregator(servers, topic_prefix, tmp_path) as aggregator:
        aggregator.start().wait_ready()
        with before[0].publishing():
            admin.create_partitions([NewPartitions(topics.metrics, 5)])[topics.metrics].result(30)
            wait_until(lambda: len(end_offsets(servers, topics.metrics)) == 5, 60, "there are five partitions")
        # A new client knows all five partitions at once; the others learn of them when their metadata expires.
        after = [Fleet(servers, topics.metrics, 9, app=app, shares=shares) for app in ("billing", "parcels")]
        for fleet in after:
            fleet.publish(150)
        assert all(end_offsets(servers, topics.metrics)[partition] for partition in range(5))
        assert_exact(broker, topics)
        assert_as_acknowledged(broker, topics, [*before, *after])
        assert aggregator.process.poll() is None, aggregator.output()
