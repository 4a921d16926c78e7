"""The aggregator on a cluster of three brokers whose clocks differ by 90 s, while one fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from support.cluster.brokers import CLOCKS_MS, KafkaCluster
from support.cluster.faults import KINDS, cluster_faults
from tallystream_aggregator.kafka.topics import Topics, create_topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]


def test_sums_are_exact_through_faults_of_a_cluster(tmp_path: Path) -> None:
    """Sums agree with replay and journal, and a reader sees no count fall. `make faults` has a hundred faults."""
    with KafkaCluster(tmp_path) as cluster:
        assert list(cluster.clocks_ms().values()) == pytest.approx(CLOCKS_MS, abs=45_000)
        topics = Topics("three-")
        create_topics(AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}), topics)
        cluster_faults(cluster, topics, tmp_path, KINDS[:3], seed=3)
