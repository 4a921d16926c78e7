"""`doctor`: the checks of stores, and of disks."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from support.stores import NOW_MS, write
from tallystream.errors import ConfigError
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.stores import StoreSettings
from tallystream_cli.doctor import disk, influxdb, store
from tallystream_cli.doctor.influxdb import DAY_S, Rights

if TYPE_CHECKING:
    from pathlib import Path

REFUSED = ConfigError("INFLUXDB_TOKEN", "***", "InfluxDB refuses it")


def statuses(path: Path) -> dict[str, str]:
    """Return the statuses of the checks of a local store."""
    return {one.check: str(one.status) for one in store.local(path)}


def test_a_local_store_is_read_without_a_change(tmp_path: Path) -> None:
    """A store is recognized; the files beside it stay as they are, and a missing one is not created."""
    path = tmp_path / "store.db"
    assert statuses(path)["store"] == "ok"
    assert list(tmp_path.iterdir()) == []
    write(StoreSettings.parse(f"local:{path}", env={}), [Point("m", {}, {"v": 1}, NOW_MS)])
    before = {one: one.stat() for one in tmp_path.iterdir()}
    assert set(statuses(path).values()) == {"ok"}
    assert {one: one.stat()[:-3] for one in tmp_path.iterdir()} == {one: found[:-3] for one, found in before.items()}


def test_a_local_store_that_others_can_read_is_a_warning(tmp_path: Path) -> None:
    """The store has the permissions 0600 when it is created."""
    path = tmp_path / "store.db"
    write(StoreSettings.parse(f"local:{path}", env={}), [Point("m", {}, {"v": 1}, NOW_MS)])
    path.chmod(0o644)
    assert statuses(path)["store: file"] == "warning"


def test_another_file_is_no_store() -> None:
    """A file of another program, of another release, and an empty file."""
    header = b"SQLite format 3\0" + bytes(44)
    assert store.database("x", b"#!/bin/sh\n", logged=False).status == "failed"
    assert store.database("x", header + (9).to_bytes(4, "big"), logged=False).status == "failed"
    assert store.database("x", header + bytes(4), logged=False).status == "failed"
    assert store.database("x", header + bytes(4), logged=True).status == "ok"
    assert store.database("x", header + store.SCHEMA_VERSION.to_bytes(4, "big"), logged=False).status == "ok"
    assert store.database("x", b"", logged=False).status == "ok"


def test_free_space_is_compared_with_two_limits() -> None:
    """Below 2 GiB is a warning, below 200 MiB fails."""
    assert [disk.space("d", "/", free).status for free in (3 * 1024**3, 1024**3, 1024**2)] == [
        "ok",
        "warning",
        "failed",
    ]


def test_nothing_can_be_written_below_a_file(tmp_path: Path) -> None:
    """A path whose folder is a file can't be created; one whose folders are missing can."""
    (tmp_path / "file").write_bytes(b"")
    assert not disk.writable(tmp_path / "file" / "store.db")
    assert disk.writable(tmp_path / "new" / "store.db")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("rights", "commands", "status"),
    [
        (Rights(None, None), ["lag collect", "ship"], "ok"),
        (Rights(None, REFUSED), ["page"], "ok"),
        (Rights(None, REFUSED), [], "ok"),
        (Rights(None, REFUSED), ["ship"], "failed"),
        (Rights(REFUSED, None), ["lag collect"], "failed"),
        (Rights(REFUSED, REFUSED), [], "failed"),
    ],
)
def test_a_token_needs_the_rights_of_the_commands(rights: Rights, commands: list[str], status: str) -> None:
    """Without named commands one right is enough, because each command can have its own token."""
    assert influxdb.rights(rights, commands).status == status


@pytest.mark.parametrize(
    ("seconds", "status"), [(0, "ok"), (DAY_S, "warning"), (7 * DAY_S, "ok"), (None, "not checked")]
)
def test_a_bucket_keeps_points_as_long_as_the_topics_keep_sums(seconds: int | None, status: str) -> None:
    """Seven days, or without a limit."""
    assert influxdb.retention(seconds).status == status


def test_a_receiver_must_accept_connections() -> None:
    """Graphite and OTLP: a listening port is ok, a closed one fails, and Prometheus' address is the shipper's own."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        specs = (f"graphite:127.0.0.1:{port}", f"otlp:http://127.0.0.1:{port}")
        settings = [StoreSettings.parse(spec, env={}) for spec in specs]
        assert [store.receiver(one).status for one in settings] == ["ok", "ok"]
    assert [store.receiver(one).status for one in settings] == ["failed", "failed"]
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
