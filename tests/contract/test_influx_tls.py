"""InfluxDB over TLS."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.certificates import self_signed
from support.influxd import InfluxServer, find_or_build
from support.stores import NOW_MS, content, write
from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings, open_reader, open_sink

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.integration


def test_a_server_is_trusted_if_its_authority_is_named(tmp_path: Path) -> None:
    """Without INFLUXDB_CA_FILE each call raises an error that names it."""
    found = find_or_build()
    if found.path is None:
        pytest.skip(found.reason)
    tls = self_signed(tmp_path, "influxdb")
    with InfluxServer(tmp_path / "influxdb", binary=found.path, tls=tls) as server:
        env = {"INFLUXDB_TOKEN": server.token, "INFLUXDB_ORG": server.org}
        trusting = StoreSettings.parse(f"influxdb:{server.url}", env=env | {"INFLUXDB_CA_FILE": str(tls[0])})
        assert server.url.startswith("https://")
        assert write(trusting, [Point("m", {}, {"v": 1}, NOW_MS)]) == 0
        assert content(trusting, "m", ["v"]) == {(): {NOW_MS: {"v": 1}}}
        untrusting = StoreSettings.parse(f"influxdb:{server.url}", env=env)
        sink, reader = open_sink(untrusting), open_reader(untrusting)
        for call in (sink.setup, lambda: sink.write([Point("m", {}, {"v": 1}, NOW_MS)]), reader.measurements):
            with pytest.raises(ConfigError, match="INFLUXDB_CA_FILE is not set; the certificate of https://"):
                call()
        sink.close()
        reader.close()
