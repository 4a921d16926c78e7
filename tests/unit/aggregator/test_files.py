"""Files and folders with data: only their owner may read them, whatever the umask is."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING

import pytest

from tallystream.errors import ConfigError
from tallystream_aggregator import files
from tallystream_aggregator.sinks.base import Point
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_cli.local.system import LocalSystem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """Set a umask with which everybody may read and write new files."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> str:
    """Return the permissions of a file or a folder."""
    return f"{path.stat().st_mode & 0o777:o}"


def test_only_the_owner_may_read_a_new_store(tmp_path: Path) -> None:
    """This includes its folder, and the log and the shared memory of SQLite."""
    store = LocalStore(tmp_path / "new" / "store.db")
    store.write([Point("m", {}, {"v": 1}, 10**12)])
    assert mode(tmp_path / "new") == "700"
    files = sorted((tmp_path / "new").iterdir())
    assert [(path.name, mode(path)) for path in files] == [
        ("store.db", "600"),
        ("store.db-shm", "600"),
        ("store.db-wal", "600"),
    ]
    store.close()


def test_an_existing_store_is_restricted_when_it_is_opened(tmp_path: Path) -> None:
    """Its log is restricted, too, also while another process has the store open."""
    path = tmp_path / "store.db"
    first = LocalStore(path)
    first.write([Point("m", {}, {"v": 1}, 10**12)])
    for name in ("store.db", "store.db-shm", "store.db-wal"):
        (tmp_path / name).chmod(0o644)
    second = LocalStore(path)
    second.setup()
    assert {mode(one) for one in tmp_path.iterdir()} == {"600"}
    first.close()
    second.close()


def test_other_files_keep_their_permissions(tmp_path: Path) -> None:
    """These are another program's database, and an existing folder."""
    tmp_path.chmod(0o755)
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    path.chmod(0o644)
    store = LocalStore(path)
    with pytest.raises(ConfigError, match="a database of something else"):
        store.setup()
    assert (mode(path), mode(tmp_path)) == ("644", "755")


def test_only_the_owner_may_read_a_file_that_is_written(tmp_path: Path) -> None:
    """The file of a failed attempt, with wider permissions, is replaced."""
    path = tmp_path / "new" / "secret"
    files.write_file(path, b"one")
    assert (mode(tmp_path / "new"), mode(path)) == ("700", "600")
    path.with_name("secret.new").touch(0o666)
    files.write_file(path, b"two")
    assert (mode(path), path.read_bytes()) == ("600", b"two")


def test_only_the_owner_may_enter_the_folder_of_the_local_system(tmp_path: Path) -> None:
    """It has logs, checkpoints, the broker's data and the store."""
    data = tmp_path / "data"
    data.mkdir(0o755)
    system = LocalSystem(data, say=lambda _: None)
    system._lock_folder()
    assert mode(data) == "700"
    system.stop()
