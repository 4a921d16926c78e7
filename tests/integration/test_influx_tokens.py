"""The tokens that Compose's first step creates on a real InfluxDB: one for each service, with its permissions."""

from __future__ import annotations

import stat
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from support.stores import NOW_MS, Influx, content, influx_bucket, write
from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings, open_store
from tallystream_cli.influx_tokens import PERMISSIONS, main

pytestmark = pytest.mark.integration

POINT = Point("m", {}, {"v": 1}, NOW_MS)


@pytest.fixture
def store(influxdb: Influx) -> Iterator[StoreSettings]:
    with influx_bucket(influxdb, f"test {uuid.uuid4().hex}") as settings:
        yield settings


def environment(store: StoreSettings) -> dict[str, str]:
    """Return the environment that Compose gives to the step."""
    names = ("INFLUXDB_URL", "INFLUXDB_TOKEN", "INFLUXDB_ORG", "INFLUXDB_BUCKET")
    return dict(zip(names, (store.where, store.token, store.org, store.bucket), strict=True))


def tokens(folder: Path) -> dict[str, str]:
    """Return the written tokens by part."""
    return {part: (folder / part / "token").read_text() for part in PERMISSIONS}


def test_each_part_has_the_permissions_that_it_needs(store: StoreSettings, influxdb: Influx, tmp_path: Path) -> None:
    """The shipper writes, the page and Grafana read, the lag collector does both, and none can use another bucket."""
    assert main([str(tmp_path)], environment(store)) == 0
    by_part = tokens(tmp_path)
    assert len({*by_part.values(), store.token}) == 5
    write(store, [POINT])
    for part, actions in PERMISSIONS.items():
        settings = replace(store, token=by_part[part])
        if "write" in actions:
            assert write(settings, [POINT]) == 0
        else:
            with pytest.raises(ConfigError, match="INFLUXDB_TOKEN"):
                write(settings, [POINT])
        if "read" in actions:
            assert content(settings, "m", ["v"]) == {(): {NOW_MS: {"v": 1}}}
            reader = open_store(settings)
            assert reader.measurements() == ["m"]
            reader.close()
        else:
            with pytest.raises(ConfigError, match="INFLUXDB_BUCKET"):
                content(settings, "m", ["v"])
        with pytest.raises(ConfigError):
            write(replace(settings, bucket=influxdb.bucket), [POINT])
    lag = open_store(replace(store, token=by_part["lag"]))
    lag.delete("m", start_ms=0, end_ms=NOW_MS + 1)
    lag.close()
    assert content(store, "m", ["v"]) == {}


def test_a_second_run_keeps_the_tokens(store: StoreSettings, tmp_path: Path) -> None:
    """Lost files are written again with the same tokens; every user can read them."""
    env = environment(store)
    assert main([str(tmp_path)], env) == 0
    first = tokens(tmp_path)
    (tmp_path / "page" / "token").unlink()
    assert main([str(tmp_path)], env) == 0
    assert tokens(tmp_path) == first
    assert {stat.S_IMODE((tmp_path / part / "token").stat().st_mode) for part in PERMISSIONS} == {0o444}


def test_wrong_settings_are_clear_errors(
    store: StoreSettings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A token that may not create tokens, and a missing organization or bucket, give one line and exit code 2."""
    env = environment(store)
    assert main([str(tmp_path)], env) == 0
    page = tokens(tmp_path)["page"]
    for changed, field in (
        ({"INFLUXDB_TOKEN": "wr0ng-token"}, "INFLUXDB_TOKEN"),
        ({"INFLUXDB_TOKEN": page}, "INFLUXDB_ORG"),
        ({"INFLUXDB_ORG": "none"}, "INFLUXDB_ORG"),
        ({"INFLUXDB_BUCKET": "none"}, "INFLUXDB_BUCKET"),
    ):
        assert main([str(tmp_path)], env | changed) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"{field}: ")
        assert len(error.splitlines()) == 1
        assert not [token for token in (page, "wr0ng-token") if token in error]
