"""InfluxDB over TLS: trusted by its authority's certificate, refused without."""

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


def test_an_authority_of_our_own_is_trusted_where_it_is_named(tmp_path: Path) -> None:
    """With INFLUXDB_CA_FILE points go in and come out over TLS; without, each call says which setting to make."""
    found = find_or_build()
    if found.path is None:
        pytest.skip(found.reason)
    tls = self_signed(tmp_path, "influxdb")
    with InfluxServer(tmp_path / "influxdb", binary=found.path, tls=tls) as server:
        env = {"INFLUXDB_TOKEN": server.token, "INFLUXDB_ORG": server.org}
        trusted = StoreSettings.parse(f"influxdb:{server.url}", env=env | {"INFLUXDB_CA_FILE": str(tls[0])})
        assert server.url.startswith("https://")
        assert write(trusted, [Point("m", {}, {"v": 1}, NOW_MS)]) == 0
        assert content(trusted, "m", ["v"]) == {(): {NOW_MS: {"v": 1}}}
        stranger = StoreSettings.parse(f"influxdb:{server.url}", env=env)
        sink, reader = open_sink(stranger), open_reader(stranger)
        for call in (sink.setup, lambda: sink.write([Point("m", {}, {"v": 1}, NOW_MS)]), reader.measurements):
            with pytest.raises(ConfigError, match="INFLUXDB_CA_FILE is not set; the certificate of https://"):
                call()
        sink.close()
        reader.close()
