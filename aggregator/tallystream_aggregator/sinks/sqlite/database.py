"""Opens the SQLite file of a local store, creates its tables, and translates SQLite's errors."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from tallystream.errors import ConfigError
from tallystream_aggregator import files
from tallystream_aggregator.sinks.base import SinkUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA_VERSION = 2
BUSY_S = 30.0
"""The seconds for which a call waits for another process's transaction before the store counts as unavailable."""

_SERIES = """
CREATE TABLE series (id INTEGER PRIMARY KEY, measurement TEXT NOT NULL, tags TEXT NOT NULL, UNIQUE (measurement, tags))
"""
# The value has no declared type, so SQLite stores an integer, a float or a text as it is.
_POINTS = """
CREATE TABLE points (series INTEGER NOT NULL, ts INTEGER NOT NULL, field TEXT NOT NULL, value NOT NULL,
    PRIMARY KEY (series, ts, field)) WITHOUT ROWID
"""


@contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Translate errors of SQLite and the file system: SinkUnavailableError if they may pass, otherwise ConfigError."""
    try:
        yield
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise _wrong(path, f"{error.strerror}: name a file in a folder of yours") from error
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise _wrong(path, f"{error.strerror}: give a shorter path") from error
        raise SinkUnavailableError(f"local store {path}: {error.strerror or error}.") from error
    except sqlite3.OperationalError as error:
        raise SinkUnavailableError(f"local store {path}: {error}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # SQLite's error about a schema has bytes of it
        raise _wrong(path, f"it is damaged ({error}): name another file, or restore this one from a copy") from error
    except sqlite3.DatabaseError as error:
        raise _wrong(path, f"it is not a store ({error}): name another file") from error


def create(path: Path) -> sqlite3.Connection:
    """Open a store to write to it. Create missing folders, file and tables, with access only for the owner.

    Raises:
        ConfigError: the file is not a store, or a store of another version.
        OSError: the file or its folder can't be created.
        sqlite3.Error: SQLite can't open the file.
    """
    _require_file(path)
    files.make_folder(path.parent)
    files.make_file(path)  # SQLite's log and shared memory get the permissions of the file
    _require_access(path, path, os.R_OK | os.W_OK)
    _require_access(path, path.parent, os.W_OK | os.X_OK)
    connection = _open(path)
    try:
        _require_store(connection, path)
        _create_tables(connection)
        for name in ("", "-wal", "-shm"):
            files.restrict(path.with_name(path.name + name), files.FILE)
    except BaseException:
        connection.close()
        raise
    return connection


def open_existing(path: Path) -> sqlite3.Connection | None:
    """Open a store to read it. Return None if there is none yet.

    Raises:
        ConfigError: the file is not a store, or a store of another version.
        sqlite3.Error: SQLite can't open the file.
    """
    _require_file(path)
    if not path.exists():
        return None
    _require_access(path, path, os.R_OK)
    connection = _open(path)
    try:
        if _require_store(connection, path):
            connection.execute("PRAGMA query_only = 1")
            return connection
    except BaseException:
        connection.close()
        raise
    connection.close()
    return None


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(
        # Not mode=ro for a reader: it may need to create the shared-memory file of the write-ahead log.
        f"{path.resolve().as_uri()}?mode=rw",
        uri=True,
        timeout=BUSY_S,
        isolation_level=None,
        check_same_thread=False,  # threads call one at a time
    )


def _wrong(path: Path, why: str) -> ConfigError:
    return ConfigError("--store", f"local:{path}", why)


def _require_access(path: Path, place: Path, mode: int) -> None:
    """Require that this user has a permission. SQLite's errors do not tell that from too many open files."""
    if not os.access(place, mode, effective_ids=os.access in os.supports_effective_ids):
        why = f"no permission for {place}: run as the owner of the file and of its folder, or name another file"
        raise _wrong(path, why)


def _require_file(path: Path) -> None:
    if path.is_dir():
        raise _wrong(path, "it is a folder: name a file in it")


def _require_store(connection: sqlite3.Connection, path: Path) -> bool:
    """Require that the database is a store of this version, or empty. Return whether it has the tables of a store."""
    connection.execute("BEGIN")  # one consistent view: another process may be creating the tables
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    connection.execute("COMMIT")
    if (version == 0 and tables) or (version == SCHEMA_VERSION and not tables >= {"series", "points"}):
        raise _wrong(path, "it is a database of something else: name another file")
    if version not in (0, SCHEMA_VERSION):
        why = f"its schema is version {version} and this release knows {SCHEMA_VERSION}: take the release that wrote it"
        raise _wrong(path, why)
    return bool(tables)


def _create_tables(connection: sqlite3.Connection) -> None:
    _keep_a_log(connection)
    connection.execute("PRAGMA synchronous = FULL")  # NORMAL would lose the last writes in a power failure
    with connection:  # commits
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:  # another process may have created the tables
            for statement in (_SERIES, _POINTS, f"PRAGMA user_version = {SCHEMA_VERSION}"):
                connection.execute(statement)


def _keep_a_log(connection: sqlite3.Connection) -> None:
    # SQLite's timeout does not apply here: if two processes change the mode of a new file at once, one is refused.
    until = time.monotonic() + BUSY_S
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() >= until:
                raise
            time.sleep(0.02)
