"""The broker launcher: what the other tests stand on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from support.kafka import read_topic
from tallystream_aggregator.kafka.topics import Topics, create_topics, policies
from tallystream_cli.servers.broker import KafkaBroker

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration


def test_records_outlive_a_kill_and_a_stop(tmp_path: Path) -> None:
    """A broker that is killed, or stopped, and started again on the same directory has its records and its port."""
    broker = KafkaBroker(tmp_path / "broker")
    with broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        for future in admin.create_topics([NewTopic("kept", 1, 1)]).values():
            future.result()
        producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        producer.produce("kept", b"first")
        assert producer.flush(30) == 0
        broker.kill()
        assert broker.pid is None
        broker.start()
        assert broker.bootstrap_servers == servers
        assert [read.value for read in read_topic(servers, "kept")] == [b"first"]
        broker.stop()
        broker.start()
        assert [read.value for read in read_topic(servers, "kept")] == [b"first"]
        pid = broker.pid
        assert pid is not None
    assert not psutil.pid_exists(pid)


def test_topics_that_a_broker_created_on_first_use_get_their_policies(admin: AdminClient, topic_prefix: str) -> None:
    """What nobody has set for such a topic is set; what somebody has set, and a second time everything, stays."""
    topics, day = Topics(topic_prefix), str(86_400_000)
    created = [
        NewTopic(topics.metrics, 1, 1),
        NewTopic(topics.agg, 1, 1),
        NewTopic(topics.dead, 1, 1, config={"retention.ms": day}),
    ]
    for future in admin.create_topics(created).values():
        future.result()
    for _ in range(2):
        create_topics(admin, topics, correct=True)
        wanted = policies(topics)
        wanted[topics.dead]["retention.ms"] = day
        for name, config in wanted.items():
            resource = ConfigResource(ConfigResource.Type.TOPIC, name)
            found = admin.describe_configs([resource])[resource].result()
            assert {key: found[key].value for key in config} == config
