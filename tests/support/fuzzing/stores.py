"""Readers of a store: a damaged SQLite file, and points that somebody else has written to the store of lag and sums."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from support.lag import Rounds
from tallystream_aggregator.sinks.base import Point, PointReader
from tallystream_aggregator.sinks.sqlite import database
from tallystream_aggregator.sinks.sqlite.database import SCHEMA_VERSION, create
from tallystream_aggregator.sinks.sqlite.sink import LocalStore
from tallystream_dashboards.data.stored import read_stored
from tallystream_dashboards.lag.reader import read_group, read_groups, read_partitions, read_samples

NOW_MS = 1_700_000_000_000


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tallystream-fuzz-")


def empty_path() -> Path:
    """Return the path of a file that does not exist, in a folder that ends with the process."""
    path = Path(_folder().name) / "store.db"
    for suffix in ("", "-wal", "-shm", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return path


def local_store(data: bytes) -> None:
    """Read a file as a local store, and write to every fourth one."""
    path = empty_path()
    path.write_bytes(data)
    with patch.object(database, "BUSY_S", 0.05), closing(LocalStore(path, clock=lambda: NOW_MS)) as store:
        for measurement in [*store.measurements(), "tallystream.lag"]:
            fields = ("count", "sum", "lag", "committed", "end", "status")
            for last_before in (False, True):
                store.read(measurement, fields, start_ms=0, end_ms=2**62, last_before=last_before)
        read_all(store)
        if len(data) % 4 == 0:
            store.setup()
            store.write([Point("n", {"app": "a"}, {"count": 1}, NOW_MS)])
            store.delete("n", start_ms=0, end_ms=NOW_MS)


def points(data: bytes) -> None:
    """Read a store with the points of an input: a line is a measurement, a tab, and a JSON list: tags, time, fields.

    Anybody who may write to the store may have written them.
    """
    connection, store = _opened()
    with connection:
        connection.execute("BEGIN")
        connection.execute("DELETE FROM points")
        connection.execute("DELETE FROM series")
        for line in data.split(b"\n"):
            with suppress(ValueError, TypeError, RecursionError, OverflowError, sqlite3.Error):
                _insert(connection, *line.partition(b"\t")[::2])
    read_all(store)


@cache
def _opened() -> tuple[sqlite3.Connection, LocalStore]:
    """Return a store for all inputs of `points`, and a connection that writes to it."""
    connection = create(points_path())
    connection.execute("PRAGMA synchronous = OFF")
    return connection, LocalStore(points_path())


def points_path() -> Path:
    """Return the path of the store for all inputs of `points`."""
    return empty_path().with_name("points.db")


def _insert(connection: sqlite3.Connection, measurement: bytes, value: bytes) -> None:
    tags, ts_ms, fields = json.loads(value)
    assert SCHEMA_VERSION == 2
    text = json.dumps(tags, ensure_ascii=False, separators=(",", ":"))
    series = connection.execute(
        "INSERT INTO series (measurement, tags) VALUES (?, ?) ON CONFLICT DO UPDATE SET tags = tags RETURNING id",
        (measurement.decode(), text),
    ).fetchone()
    for name, field in dict(fields).items():
        stored: Any = bytes([field]) if isinstance(field, bool) else field
        connection.execute("INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?)", (*series, ts_ms, name, stored))


def read_all(reader: PointReader) -> None:
    """Read the history of lag as the collector, the page and the commands do."""
    for one in read_groups(reader, at_ms=NOW_MS)[:3]:
        read_group(reader, one.group, at_ms=NOW_MS)
    read_partitions(reader, at_ms=NOW_MS)
    read_samples(reader, start_ms=NOW_MS - 3_600_000, end_ms=NOW_MS + 1)
    read_stored(reader, NOW_MS)
    Rounds().load(reader, NOW_MS)
