"""Opens the SQLite file of a local store, creates its tables, and translates SQLite's errors."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tallystream.errors import ConfigError
from tallystream_aggregator import files
from tallystream_aggregator.sinks.base import SinkUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA_VERSION = 1
BUSY_S = 30.0
"""The seconds for which a call waits for another process's transaction before the store counts as unavailable."""

_SERIES = """
CREATE TABLE IF NOT EXISTS series (
    id INTEGER PRIMARY KEY, measurement TEXT NOT NULL, tags TEXT NOT NULL, UNIQUE (measurement, tags))
"""
_POINTS = """
CREATE TABLE IF NOT EXISTS points (
    series INTEGER NOT NULL, ts INTEGER NOT NULL, fields TEXT NOT NULL, PRIMARY KEY (series, ts)) WITHOUT ROWID
"""


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Translate errors of SQLite and the file system: SinkUnavailableError if they may pass, otherwise ConfigError."""
    try:
        yield
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise ConfigError("--store", f"local:{path}", f"{error.strerror}: name a file in a folder of yours") from error
    except (sqlite3.OperationalError, OSError) as error:
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            raise ConfigError("--store", f"local:{path}", f"{error.strerror}: give a shorter path") from error
        raise SinkUnavailableError(f"local store {path}: {error}.") from error
    except sqlite3.DatabaseError as error:
        raise ConfigError("--store", f"local:{path}", f"it is not a store ({error}): name another file") from error


def connect(path: Path, *, make: bool, busy_s: float = BUSY_S) -> sqlite3.Connection:
    """Open the file. With `make`, create missing folders, file and tables, with access only for the owner.

    Raises:
        ConfigError: the file is not a store, is a store of another version, or this user may not use it.
    """
    if path.is_dir():
        raise ConfigError("--store", f"local:{path}", "it is a folder: name a file in it")
    if make:
        files.make_folder(path.parent)
        files.make_file(path)  # SQLite's log and shared memory get the permissions of the file
    _require_access(path, write=make)
    connection = sqlite3.connect(
        # Not mode=ro for a reader: it may need to create the shared-memory file of the write-ahead log.
        f"{path.resolve().as_uri()}?mode={'rwc' if make else 'rw'}",
        uri=True,
        timeout=busy_s,
        isolation_level=None,
        check_same_thread=False,  # Spark calls from its own threads, one at a time
    )
    try:
        _require_store(connection, path)
        if make:
            _make(connection, busy_s)
            for name in ("", "-wal", "-shm"):
                files.restrict(path.with_name(path.name + name), files.FILE)
    except BaseException:
        connection.close()
        raise
    return connection


def has_tables(connection: sqlite3.Connection) -> bool:
    """Return whether the store was set up. Its tables and its version are created in one transaction."""
    return bool(connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION)


def _require_access(path: Path, *, write: bool) -> None:
    """Require the permissions for an existing file. SQLite's own error may also be an outage."""

    def may(place: Path, mode: int) -> bool:
        return os.access(place, mode, effective_ids=os.access in os.supports_effective_ids)

    if path.exists() and not may(path, os.R_OK | (os.W_OK if write else 0)):
        why = f"this user may not read {'and write ' if write else ''}the file: run as its owner, or name another file"
        raise ConfigError("--store", f"local:{path}", why)
    if write and not (may(path.parent, os.W_OK | os.X_OK) or path.with_name(path.name + "-wal").exists()):
        why = "this user may not create files in the folder, and SQLite keeps two beside the store: name another folder"
        raise ConfigError("--store", f"local:{path}", why)


def _require_store(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("BEGIN")  # one consistent view: another process may be creating the tables
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    connection.execute("COMMIT")
    if (version == 0 and tables) or (version == SCHEMA_VERSION and not tables >= {"series", "points"}):
        raise ConfigError("--store", f"local:{path}", "it is a database of something else: name another file")
    if version not in (0, SCHEMA_VERSION):
        raise ConfigError(
            "--store",
            f"local:{path}",
            f"its schema is version {version} and this release knows {SCHEMA_VERSION}: take the release that wrote it",
        )


def _keep_a_log(connection: sqlite3.Connection, busy_s: float) -> None:
    # SQLite's timeout does not apply here: if two processes change the mode of a new file at once, one is refused.
    until = time.monotonic() + busy_s
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.02)


def _make(connection: sqlite3.Connection, busy_s: float) -> None:
    _keep_a_log(connection, busy_s)
    connection.execute("PRAGMA synchronous = FULL")  # NORMAL would lose the last writes in a power failure
    if not has_tables(connection):
        connection.execute("BEGIN IMMEDIATE")
        for statement in (_SERIES, _POINTS, f"PRAGMA user_version = {SCHEMA_VERSION}"):
            connection.execute(statement)
        connection.execute("COMMIT")
