"""The local store: SQLite in WAL mode, no server, several processes writing and reading one file.

Why SQLite: docs/decisions/0001-local-store.md. One row is one point: its fields are a JSON object, so that a second
write of the same point merges into it (json_patch, RFC 7396: no field is ever null).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from tallystream_aggregator.sinks.base import Rejections, refused
from tallystream_aggregator.sinks.sqlite.database import BUSY_S, connect, translated_errors

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tallystream_aggregator.sinks.base import Point

DAY_MS = 86_400_000
SWEEP_EVERY_MS = 600_000

_UPSERT = """
INSERT INTO points (series, ts, fields) VALUES (?, ?, ?)
ON CONFLICT (series, ts) DO UPDATE SET fields = CASE
    WHEN typeof(fields) <> 'text' THEN excluded.fields
    WHEN json_valid(fields) THEN json_patch(fields, excluded.fields)
    ELSE excluded.fields
END
"""
# Each series' old points lie together: without the first condition every point would be looked at.
_OLD_POINTS = "DELETE FROM points WHERE series IN (SELECT id FROM series) AND ts < ?"
_SPAN = "DELETE FROM points WHERE series IN (SELECT id FROM series WHERE measurement = ?) AND ts >= ? AND ts < ?"
_EMPTY_SERIES = "DELETE FROM series WHERE NOT EXISTS (SELECT 1 FROM points WHERE points.series = series.id)"


class LocalStore:
    """Writes points to one SQLite file. Level: every point. Delivery: as the protocol says; `write` is durable at once.

    `retention_ms` is how long a point is kept, by its own time against `clock` (epoch ms); 0 keeps all. Points beyond
    it, and series without a point, are deleted at `setup` and every ten minutes of writing. `busy_s` is how long a call
    waits for another process's transaction.
    """

    def __init__(
        self,
        path: Path,
        *,
        retention_ms: int = 30 * DAY_MS,
        busy_s: float = BUSY_S,
        clock: Callable[[], int] = lambda: time.time_ns() // 10**6,
    ) -> None:
        self._path = path
        self._retention_ms = retention_ms
        self._busy_s = busy_s
        self._clock = clock
        self._swept_ms = 0
        self._connection: sqlite3.Connection | None = None
        self._series: dict[tuple[str, str], int] = {}
        self._seen = -1
        self.refusals = Rejections("the local store")

    @property
    def rejected(self) -> int:
        """How many points were refused permanently."""
        return self.refusals.number

    def setup(self) -> None:
        """Make the file and its tables, and delete what is beyond the retention; safe to call again.

        Raises:
            ConfigError: the file is something else, or of another version, or can't be made.
            SinkUnavailableError: it can't be opened or written now.
        """
        self._write((), sweep=True)

    def write(self, points: Sequence[Point]) -> None:
        """Write the points in one transaction: all of them or, with an error, none.

        Raises:
            ConfigError: as setup.
            SinkUnavailableError: another process holds the file too long, or the disk is full.
        """
        self._write(points, sweep=self._clock() - self._swept_ms >= SWEEP_EVERY_MS)

    def delete(self, measurement: str, *, start_ms: int, end_ms: int) -> None:
        """Delete a span of a measurement; nothing where there is no store yet.

        Raises:
            ConfigError: as setup.
            SinkUnavailableError: another process holds the file too long.
        """
        with translated_errors(self._path):
            if self._connection is None:
                self._connection = connect(self._path, make=True, busy_s=self._busy_s)
            self._connection.execute(_SPAN, (measurement, start_ms, end_ms))

    def flush(self) -> None:
        """Return at once: `write` is durable when it returns."""

    def close(self) -> None:
        """Close the file; safe to call again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _write(self, points: Sequence[Point], *, sweep: bool) -> None:
        with translated_errors(self._path):
            if self._connection is None:
                self._connection = connect(self._path, make=True, busy_s=self._busy_s)
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                self._forget_others(connection)
                bad: list[Point] = []
                connection.executemany(_UPSERT, self._rows(connection, points, bad))
                if sweep:
                    self._sweep(connection)
                connection.execute("COMMIT")
            except BaseException:
                self._series.clear()  # numbers given in this transaction are gone with it
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        for point in bad:
            self.refusals.add(point, refused(point))

    def _forget_others(self, connection: sqlite3.Connection) -> None:
        # Another process's sweep may have deleted a series that we know the number of.
        seen = connection.execute("PRAGMA data_version").fetchone()[0]
        if seen != self._seen:
            self._series.clear()
            self._seen = seen

    def _rows(
        self, connection: sqlite3.Connection, points: Sequence[Point], bad: list[Point]
    ) -> Iterator[tuple[int, int, str]]:
        for point in points:
            if refused(point):  # not finite, JSON has no such number: null would delete the field
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
            connection.execute(_OLD_POINTS, (self._swept_ms - self._retention_ms,))
            connection.execute(_EMPTY_SERIES)
            self._series.clear()
