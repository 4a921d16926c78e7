"""A table of shards on a real broker, whose loops run in threads of a process that is killed and paused."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from support.faults import Faults, random_kills
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_cli.servers.broker import KafkaBroker

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

SHARDS = 2


def test_a_table_of_shards_goes_on_exactly(
    broker: KafkaBroker, admin: AdminClient, topic_prefix: str, tmp_path: Path
) -> None:
    """Under load its process is killed and paused, the broker is killed, and a checkpoint is lost, another one damaged.

    Sums are exact, no count falls, and everything is published once. Verify agrees with every sum that was published.
    """
    topics = Topics(topic_prefix)
    create_topics(admin, topics, partitions=2, shards=SHARDS)
    faults = Faults(1, 0, (1.0, 1.0), 1, 1, pauses_s=(1.5,))
    random_kills(broker, topics, tmp_path, faults, seed=2, shards=SHARDS, spark=False)
