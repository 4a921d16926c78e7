"""The aggregator on a cluster of three brokers whose clocks differ by 90 s, while one fails."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from support.cluster.brokers import CLOCKS_MS, KafkaCluster
from support.cluster.faults import KINDS, cluster_faults
from support.influxd import cached_path
from support.journals import some_stores
from support.stores import influx_bucket
from tallystream_aggregator.kafka.topics import Topics, create_topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]


def test_sums_are_exact_through_faults_of_a_cluster(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Sums agree with replay and journal, and no reader sees a count fall or one that was never published.

    These are readers of `metrics-agg`, of `metrics-table`, of a local store, of InfluxDB, if it is built, and of
    Prometheus. `make faults` has a hundred faults.
    """
    with KafkaCluster(tmp_path) as cluster:
        assert list(cluster.clocks_ms().values()) == pytest.approx(CLOCKS_MS, abs=45_000)
        topics = Topics("three-")
        create_topics(AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}), topics)
        with ExitStack() as stack:
            stores = some_stores(tmp_path)
            if cached_path().exists():
                stores["influxdb"] = stack.enter_context(influx_bucket(request.getfixturevalue("influxdb"), "three"))
            cluster_faults(cluster, topics, tmp_path, KINDS[:3], seed=3, stores=stores)
