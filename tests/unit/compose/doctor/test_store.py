"""`doctor`: the checks of stores."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from support.otlp_receiver import Receiver
from support.stores import NOW_MS, write
from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import Point, SinkUnavailableError
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_cli.doctor import store
from tallystream_cli.options import unwritable

if TYPE_CHECKING:
    from pathlib import Path

REFUSED = ConfigError("INFLUXDB_TOKEN", "***", "InfluxDB refuses it")


def statuses(path: Path) -> dict[str, str]:
    """Return the statuses of the checks of a local store."""
    return {one.check: str(one.status) for one in store.local(StoreSettings.parse(f"local:{path}", env={}))}


def test_a_local_store_is_read_without_a_change(tmp_path: Path) -> None:
    """A store is recognized, and a missing one is not created."""
    path = tmp_path / "store.db"
    assert statuses(path)["store"] == "ok"
    assert list(tmp_path.iterdir()) == []
    write(StoreSettings.parse(f"local:{path}", env={}), [Point("m", {}, {"v": 1}, NOW_MS)])
    before = path.read_bytes()
    assert set(statuses(path).values()) == {"ok"}
    assert path.read_bytes() == before


def test_another_file_is_no_store(tmp_path: Path) -> None:
    """A file of another program is a wrong setting."""
    path = tmp_path / "store.db"
    path.write_bytes(b"#!/bin/sh\n" * 100)
    with pytest.raises(ConfigError, match="it is not a store"):
        statuses(path)


def test_nothing_can_be_written_below_a_file(tmp_path: Path) -> None:
    """A path whose folder is a file can't be created; one whose folders are missing can."""
    (tmp_path / "file").write_bytes(b"")
    assert unwritable(tmp_path / "file" / "store.db")
    assert not unwritable(tmp_path / "new" / "store.db")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("errors", "commands", "status"),
    [
        ((None, None), ["lag collect", "ship"], "ok"),
        ((None, REFUSED), ["page"], "ok"),
        ((None, REFUSED), [], "ok"),
        ((None, REFUSED), ["ship"], "failed"),
        ((REFUSED, None), ["lag collect"], "failed"),
        ((REFUSED, REFUSED), [], "failed"),
    ],
)
def test_a_token_needs_the_rights_of_the_commands(
    errors: tuple[ConfigError | None, ConfigError | None], commands: list[str], status: str
) -> None:
    """Without named commands one right is enough, because each command can have its own token."""
    settings = StoreSettings.parse("influxdb:http://i:8086", token="t", org="o", env={})
    assert store.rights(dict(zip(("read", "write"), errors, strict=True)), settings, commands).status == status


def test_an_otlp_receiver_must_answer() -> None:
    """An answer is ok, a closed port fails, and Prometheus' address is the shipper's own."""
    with Receiver() as receiver:
        settings = StoreSettings.parse(f"otlp:http://{receiver.address}", env={})
        (found,) = store.check_store(settings, [])
        assert found.status == "ok"
    with pytest.raises(SinkUnavailableError):
        list(store.check_store(settings, []))
    (scraped,) = store.check_store(StoreSettings.parse("prometheus:9464", env={}), [])
    assert scraped.status == "not checked"


def test_an_influxdb_that_does_not_answer_is_one_failed_check() -> None:
    """Its token is in no text."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    settings = StoreSettings.parse(f"influxdb:http://127.0.0.1:{port}", token="s3cret", org="o", env={})
    (found,) = store.check_store(settings, [])
    assert (found.status, found.check) == ("failed", "store")
    assert "s3cret" not in str(found)
