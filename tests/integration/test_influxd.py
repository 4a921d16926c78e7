"""The InfluxDB launcher: what the tests of the sink stand on."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import psutil
import pytest

from support.influxd import InfluxError, InfluxServer, find_or_build
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.influxdb.sink import InfluxStore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration


@pytest.fixture
def binary() -> Path:
    """The influxd of the cache, built if need be."""
    found = find_or_build()
    if found.path is None:
        pytest.skip(found.reason)
    return found.path


def _store(server: InfluxServer) -> InfluxStore:
    return InfluxStore(server.url, token=server.token, org=server.org, bucket=server.bucket)


def test_points_and_token_outlive_a_kill_a_stop_and_the_process(binary: Path, tmp_path: Path) -> None:
    """Killed, stopped, and taken over by another launcher, the server has its points, its port and its token."""
    folder = tmp_path / "influxdb"
    with InfluxServer(folder, binary=binary) as server:
        url, token = server.url, server.token
        _store(server).write([Point("kept", {}, {"count": 1}, 1_000)])
        server.kill()
        assert server.pid is None
        server.start()
        assert (server.url, server.token) == (url, token)
        assert _store(server).measurements() == ["kept"]
        pid = server.pid
        assert pid is not None
    assert not psutil.pid_exists(pid)
    with InfluxServer(folder, binary=binary) as again:
        assert again.token == token
        assert _store(again).measurements() == ["kept"]
    assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
    assert token not in (folder / "influxd.log").read_text()


def test_a_server_that_cannot_start_says_why(binary: Path, tmp_path: Path) -> None:
    """Where another server has the port, it is not taken for ours: the error says so. A broken one is quoted."""
    with InfluxServer(tmp_path / "first", binary=binary) as first:
        port = int(first.url.rsplit(":", 1)[1])
        second = InfluxServer(tmp_path / "second", port=port, binary=binary)
        with pytest.raises(InfluxError, match=rf"port {port} can't be had: Address already in use"):
            second.start()
        assert second.pid is None
    (tmp_path / "third" / "influxd.bolt").mkdir(parents=True)
    third = InfluxServer(tmp_path / "third", binary=binary)
    with pytest.raises(InfluxError, match=r"(?s)ended while starting.*influxd\.bolt: is a directory"):
        third.start()
