"""The launchers of the broker and of InfluxDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.kafka import read_topic
from tallystream_cli.servers.broker import KafkaBroker

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def test_records_survive_a_kill(tmp_path: Path) -> None:
    """A broker that is killed, and started again in the same folder, has its records and its port.

    The folder may have any name. The data is there and nowhere else.
    """
    folder = tmp_path / "jörg, b"
    broker = KafkaBroker(folder)
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
        pid = broker.pid
        assert pid is not None
    assert not psutil.pid_exists(pid)
    assert (folder / "data" / "meta.properties").exists()
    assert list(tmp_path.iterdir()) == [folder]
