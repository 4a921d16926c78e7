"""A table that is split while Spark's checkpoint still has the earlier shards, on a real broker and real Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.aggregator import Aggregator
from support.commands import run
from support.exactness import assert_exact
from support.fleet import Fleet
from support.kafka import read_topic
from tallystream_aggregator.kafka.topics import Topics, create_topics

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

    from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]


def test_a_table_is_split_under_the_checkpoint_of_spark(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """The checkpoint has the query of one shard. The aggregator goes on with three, and sets the checkpoint aside."""
    topics = Topics(topic_prefix)
    create_topics(admin, topics, shards=3)
    fleet = Fleet(broker.bootstrap_servers, topics.metrics, seed=13)
    fleet.publish(400)
    with Aggregator(broker.bootstrap_servers, topic_prefix, tmp_path, spark=True) as aggregator:
        aggregator.start().wait_ready()
        assert_exact(broker, topics)
        aggregator.stop()
        options = ("--bootstrap-servers", broker.bootstrap_servers, "--topic-prefix", topic_prefix)
        split = run("rebuild", *options, "--shards", "3")
        assert split.returncode == 0, split.stderr
        fleet.publish(200)
        aggregator.start().wait_ready()
        fleet.publish(200)
        assert assert_exact(broker, topics)
        assert aggregator.stop() == 0
    last = {read.partition: read.key for read in read_topic(broker.bootstrap_servers, topics.table)}
    assert last == {shard: b'["positions",%d]' % shard for shard in range(3)}
