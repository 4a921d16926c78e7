"""The sink of the local store: SQLite in WAL mode, without a server. Several processes may write and read one file.

Why SQLite: docs/decisions/0001-local-store.md. A row is a point. Its fields are a JSON object, into which a second
write of the same point is merged.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from tallystream.decoding import json_decoder
from tallystream_aggregator.sinks.base import LAG_MEASUREMENTS, Field, Rejections, refused
from tallystream_aggregator.sinks.sqlite.database import BUSY_S, connect, translated_errors
from tallystream_aggregator.times import DAY_MS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tallystream_aggregator.sinks.base import Point

SWEEP_EVERY_MS = 600_000

_decode_fields = json_decoder(dict[str, Field])

# merge_fields, not json_patch: for SQLite 3.53's, names are equal if they differ only after a NUL character.
# As bytes: SQLite would fail at a text that is not UTF-8.
_UPSERT = """
INSERT INTO points (series, ts, fields) VALUES (?, ?, ?)
ON CONFLICT (series, ts) DO UPDATE SET fields = merge_fields(CAST(fields AS BLOB), excluded.fields)
"""
# The first condition is for speed: it looks up each series' old points by the primary key, without scanning all points.
_OLD_POINTS = """
DELETE FROM points WHERE series IN (SELECT id FROM series WHERE (measurement IN (?, ?, ?, ?)) = ?) AND ts < ?
"""
_SPAN = "DELETE FROM points WHERE series IN (SELECT id FROM series WHERE measurement = ?) AND ts >= ? AND ts < ?"
_EMPTY_SERIES = "DELETE FROM series WHERE NOT EXISTS (SELECT 1 FROM points WHERE points.series = series.id)"


def _merge_fields(before: bytes, added: str) -> str:
    try:
        fields = _decode_fields(before)
    except msgspec.DecodeError:
        return added  # damaged
    return msgspec.json.encode(fields | _decode_fields(added)).decode()


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what identifies the file of this name; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class LocalStore:
    """Writes points to one SQLite file.

    Level: every point. Delivery: as in the protocol `Sink`; points are durable when `write` returns.

    Points whose time is more than `retention_ms` before `clock` (epoch ms), and series without points, are deleted at
    `setup` and in a `write` at most every ten minutes; 0 keeps all. With `lag` only the points of lag are deleted,
    otherwise only the others, because the writer of lag has a retention of its own. A call waits up to `busy_s` seconds
    for another process's transaction.
    """

    def __init__(
        self,
        path: Path,
        *,
        retention_ms: int = 30 * DAY_MS,
        lag: bool = False,
        busy_s: float = BUSY_S,
        clock: Callable[[], int] = lambda: time.time_ns() // 10**6,
    ) -> None:
        self._path = path
        self._retention_ms = retention_ms
        self._lag = lag
        self._busy_s = busy_s
        self._clock = clock
        self._swept_ms = 0
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._series: dict[tuple[str, str], int] = {}
        self._seen = -1
        self.refusals = Rejections("the local store")

    def setup(self) -> None:
        """Create the file and its tables, and delete points beyond the retention. It is safe to call this again.

        Raises:
            ConfigError: the file is not a store, is of another version, or can't be created.
            SinkUnavailableError: the file can't be opened or written now.
        """
        self._write((), sweep=True)

    def write(self, points: Sequence[Point]) -> None:
        """Write the points in one transaction: if it raises, none is written.

        Raises:
            ConfigError: as `setup`.
            SinkUnavailableError: another process holds the file too long, or the disk is full.
        """
        self._write(points, sweep=self._clock() - self._swept_ms >= SWEEP_EVERY_MS)

    def delete(self, measurement: str, *, start_ms: int, end_ms: int) -> None:
        """Delete the points of a measurement with start_ms <= time < end_ms. A missing store is created.

        Raises:
            ConfigError: as `setup`.
            SinkUnavailableError: another process holds the file too long.
        """
        with translated_errors(self._path):
            self._open().execute(_SPAN, (measurement, start_ms, end_ms))

    def flush(self) -> None:
        """Do nothing: points are durable when `write` returns."""

    def close(self) -> None:
        """Close the file. It is safe to call this again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _open(self) -> sqlite3.Connection:
        if self._connection is not None and _identity(self._path) != self._file:
            self.close()  # the file was deleted, moved or replaced, so nobody would read what is written to it
        if self._connection is None:
            self._series.clear()
            self._connection = connect(self._path, make=True, busy_s=self._busy_s)
            self._connection.create_function("merge_fields", 2, _merge_fields, deterministic=True)
            self._file = _identity(self._path)
        return self._connection

    def _write(self, points: Sequence[Point], *, sweep: bool) -> None:
        with translated_errors(self._path):
            connection = self._open()
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._forget_others(connection)
                bad: list[Point] = []
                connection.executemany(_UPSERT, self._rows(connection, points, bad))
                if sweep:
                    self._sweep(connection)
                connection.execute("COMMIT")
            except BaseException:
                self._series.clear()  # IDs of this transaction were rolled back
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        for point in bad:
            self.refusals.add(point, refused(point))

    def _forget_others(self, connection: sqlite3.Connection) -> None:
        # Another process's sweep may have deleted a series whose ID is cached here.
        seen = connection.execute("PRAGMA data_version").fetchone()[0]
        if seen != self._seen:
            self._series.clear()
            self._seen = seen

    def _rows(
        self, connection: sqlite3.Connection, points: Sequence[Point], bad: list[Point]
    ) -> Iterator[tuple[int, int, str]]:
        for point in points:
            if refused(point):  # a float that is not finite would be null in JSON, which deletes the field
                bad.append(point)
                continue
            tags = msgspec.json.encode(dict(sorted(point.tags.items()))).decode()
            fields = msgspec.json.encode(dict(point.fields)).decode()
            yield self._number(connection, (point.measurement, tags)), point.ts_ms, fields

    def _number(self, connection: sqlite3.Connection, key: tuple[str, str]) -> int:
        number = self._series.get(key)
        if number is None:
            connection.execute("INSERT OR IGNORE INTO series (measurement, tags) VALUES (?, ?)", key)
            found = connection.execute("SELECT id FROM series WHERE measurement = ? AND tags = ?", key).fetchone()
            number = self._series[key] = int(found[0])
        return number

    def _sweep(self, connection: sqlite3.Connection) -> None:
        self._swept_ms = self._clock()
        if self._retention_ms:
            connection.execute(_OLD_POINTS, (*LAG_MEASUREMENTS, self._lag, self._swept_ms - self._retention_ms))
            connection.execute(_EMPTY_SERIES)
            self._series.clear()
