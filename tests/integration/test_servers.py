"""The launchers of the broker and of InfluxDB."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.influxd import InfluxError, InfluxServer, find_or_build
from support.kafka import read_topic
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.influxdb.sink import InfluxStore
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


@pytest.fixture
def binary() -> Path:
    """The cached influxd, which is built if it is missing."""
    found = find_or_build()
    if found.path is None:
        pytest.skip(found.reason)
    return found.path


def open_store(server: InfluxServer) -> InfluxStore:
    return InfluxStore(server.url, token=server.token, org=server.org, bucket=server.bucket)


def test_points_and_token_survive_a_kill_a_stop_and_the_process(binary: Path, tmp_path: Path) -> None:
    """After a kill, a stop, and a start by another launcher, the server has its points, its port and its token."""
    folder = tmp_path / "influxdb"
    with InfluxServer(folder, binary=binary) as server:
        url, token = server.url, server.token
        open_store(server).write([Point("kept", {}, {"count": 1}, 1_000)])
        server.kill()
        assert server.pid is None
        server.start()
        assert (server.url, server.token) == (url, token)
        assert open_store(server).measurements() == ["kept"]
        pid = server.pid
        assert pid is not None
    assert not psutil.pid_exists(pid)
    with InfluxServer(folder, binary=binary) as again:
        assert again.token == token
        assert open_store(again).measurements() == ["kept"]
    assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
    assert token not in (folder / "influxd.log").read_text()


def test_the_error_of_a_server_that_cannot_start_has_the_reason(binary: Path, tmp_path: Path) -> None:
    """If another server uses the port, or the server ends while it starts, the error has the reason."""
    with InfluxServer(tmp_path / "first", binary=binary) as first:
        port = int(first.url.rsplit(":", 1)[1])
        second = InfluxServer(tmp_path / "second", port=port, binary=binary)
        with pytest.raises(InfluxError, match=rf"port {port} can't be opened: Address already in use"):
            second.start()
        assert second.pid is None
    (tmp_path / "third" / "influxd.bolt").mkdir(parents=True)
    third = InfluxServer(tmp_path / "third", binary=binary)
    with pytest.raises(InfluxError, match=r"(?s)exited while starting.*influxd\.bolt: is a directory"):
        third.start()
