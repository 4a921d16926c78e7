"""The local store: SQLite in WAL mode, without a server. Several processes may write and read one file.

Why SQLite: docs/decisions/0001-local-store.md. A row is the value of one field of a point, so a second write of the
same point adds fields and replaces those that it has.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from tallystream.decoding import json_decoder
from tallystream_aggregator.sinks.base import LAG_MEASUREMENTS, Series, is_own, sift
from tallystream_aggregator.sinks.sqlite.database import create, open_existing, translated_errors
from tallystream_aggregator.times import DAY_MS

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tallystream_aggregator.sinks.base import Field, Point, Refused

SWEEP_EVERY_MS = 600_000

_PUT = "INSERT OR REPLACE INTO points (series, ts, field, value) VALUES (?, ?, ?, ?)"
_FIND_SERIES = "SELECT id FROM series WHERE measurement = ? AND tags = ?"
_ADD_SERIES = "INSERT INTO series (measurement, tags) VALUES (?, ?)"
# The first condition is for speed: it looks up each series' old points by the primary key, without scanning all points.
_OLD_POINTS = """
DELETE FROM points WHERE series IN (SELECT id FROM series WHERE (measurement IN ({})) = ?) AND ts < ?
"""
_SPAN = "DELETE FROM points WHERE series IN (SELECT id FROM series WHERE measurement = ?) AND ts >= ? AND ts < ?"
_EMPTY_SERIES = "DELETE FROM series WHERE NOT EXISTS (SELECT 1 FROM points WHERE points.series = series.id)"

_SERIES = "SELECT id, tags FROM series WHERE measurement = ?"
_BEFORE = """
SELECT field, ts, value FROM points WHERE series = ? AND field = ? AND ts < ? ORDER BY ts DESC LIMIT 1
"""
_WINDOW = "SELECT field, ts, value FROM points WHERE series = ? AND ts >= ? AND ts < ? AND field IN ({}) ORDER BY ts"
_NEWEST = """
SELECT field, ts, value FROM points WHERE series = ?1 AND ts = (
    SELECT max(ts) FROM points WHERE series = ?1 AND ts >= ?2 AND ts < ?3) AND field IN ({})
"""

_Value = tuple[str, int, Any]

_decode_tags = json_decoder(dict[str, str])


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what identifies the file of this name; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


class LocalStore:
    """Writes points to one SQLite file, and reads them. A store that does not exist yet is read as empty.

    Level: every point. Delivery: as in the protocol `Sink`; points are durable when `write` returns.

    Points whose time is more than `retention_ms` before `clock` (epoch ms), and series without points, are deleted at
    `setup` and in a `write` at most every ten minutes; 0 keeps all. With `lag` only the points of lag are deleted,
    otherwise only the others, because the writer of lag has a retention of its own.
    """

    def __init__(
        self,
        path: Path,
        *,
        retention_ms: int = 30 * DAY_MS,
        lag: bool = False,
        clock: Callable[[], int] = lambda: time.time_ns() // 10**6,
    ) -> None:
        self._path = path
        self._retention_ms = retention_ms
        self._lag = lag
        self._clock = clock
        self._swept_ms = 0
        self._connection: sqlite3.Connection | None = None
        self._is_writable = False
        self._file: tuple[int, int] | None = None

    def setup(self) -> None:
        """Create the file and its tables, and delete points beyond the retention. It is safe to call this again.

        Raises:
            ConfigError: the file is not a store, is of another version, or can't be created.
            SinkUnavailableError: the file can't be opened or written now.
        """
        self._write((), sweep=True)

    def write(self, points: Sequence[Point]) -> list[Refused]:
        """Write the points in one transaction: if it raises, none is written. Return those that can't be stored.

        Raises:
            ConfigError: as `setup`.
            SinkUnavailableError: another process holds the file too long, or the disk is full.
        """
        good, bad = sift("the local store", points)
        self._write(good, sweep=self._clock() - self._swept_ms >= SWEEP_EVERY_MS)
        return bad

    def delete(self, measurement: str, *, start_ms: int, end_ms: int) -> None:
        """Delete the points of a measurement with start_ms <= time < end_ms. A missing store is created.

        Raises:
            ConfigError: as `setup`.
            SinkUnavailableError: another process holds the file too long.
        """
        with translated_errors(self._path):
            self._open().execute(_SPAN, (measurement, start_ms, end_ms))

    def measurements(self) -> list[str]:
        """Return the names of all measurements, sorted.

        Raises:
            ConfigError: the file is not a store, or a store of another version.
            SinkUnavailableError: the file can't be read now.
        """
        return sorted(name for (name,) in self._rows(tuple[str], "SELECT DISTINCT measurement FROM series", ()))

    def read(
        self,
        measurement: str,
        fields: Sequence[str],
        *,
        start_ms: int,
        end_ms: int,
        tags: Mapping[str, str] | None = None,
        last_before: bool = False,
        newest: bool = False,
    ) -> list[Series]:
        """Return series as in the protocol `PointReader`.

        Raises:
            ConfigError: the file is not a store, or a store of another version.
            SinkUnavailableError: the file can't be read now.
        """
        if start_ms >= end_ms:
            return []
        names = sorted(set(fields))
        window = (_NEWEST if newest else _WINDOW).format(", ".join("?" for _ in names))
        found: list[Series] = []
        # Filtered in SQL first, so that of thousands of series only possible matches are decoded.
        sieve = [msgspec.json.encode({key: value}).decode()[1:-1] for key, value in (tags or {}).items()]
        query = _SERIES + " AND instr(tags, ?)" * len(sieve)
        for number, text in self._rows(tuple[int, str], query, (measurement, *sieve)):
            with translated_errors(self._path):
                own = _decode_tags(text)
            if tags and not tags.items() <= own.items():
                continue
            rows = []
            for name in names if last_before else ():
                rows += self._rows(_Value, _BEFORE, (number, name, start_ms))
            rows += self._rows(_Value, window, (number, start_ms, end_ms, *names))
            series = {name: Series(measurement, own, name) for name in names}
            for name, ts_ms, stored in rows:
                value = stored != b"\0" if isinstance(stored, bytes) else stored
                if is_own(name, value):
                    series[name].times_ms.append(ts_ms)
                    series[name].values.append(value)
            found += [one for one in series.values() if one.times_ms]
        return sorted(found, key=lambda one: (sorted(one.tags.items()), one.field))

    def close(self) -> None:
        """Close the file. It is safe to call this again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _close_replaced(self) -> None:
        """Close a file that was deleted, moved or replaced: nobody reads or writes it any more."""
        file = _identity(self._path)
        if self._connection is not None and file != self._file:
            self.close()
        self._file = file

    def _open(self) -> sqlite3.Connection:
        self._close_replaced()
        if self._connection is None or not self._is_writable:
            self.close()
            self._connection, self._is_writable = create(self._path), True
            self._file = _identity(self._path)
        return self._connection

    def _write(self, points: Iterable[Point], *, sweep: bool) -> None:
        with translated_errors(self._path), self._open() as connection:  # commits, or rolls back after an error
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(_PUT, _values(connection, points))
            if sweep:
                self._sweep(connection)

    def _sweep(self, connection: sqlite3.Connection) -> None:
        self._swept_ms = self._clock()
        if self._retention_ms:
            delete = _OLD_POINTS.format(", ".join("?" for _ in LAG_MEASUREMENTS))
            connection.execute(delete, (*LAG_MEASUREMENTS, self._lag, self._swept_ms - self._retention_ms))
            connection.execute(_EMPTY_SERIES)

    def _rows(self, kind: Any, query: str, values: tuple[object, ...]) -> list[Any]:
        with translated_errors(self._path):
            self._close_replaced()
            if self._connection is None:
                self._connection, self._is_writable = open_existing(self._path), False
            if self._connection is None:
                return []
            # SQLite checks no type: a damaged file may have anything anywhere.
            return msgspec.convert(self._connection.execute(query, values).fetchall(), list[kind])


def _values(connection: sqlite3.Connection, points: Iterable[Point]) -> Iterator[tuple[int, int, str, Field | bytes]]:
    """Yield a row for each value of the points. Add missing series."""
    numbers: dict[tuple[str, str], Any] = {}  # of this transaction: another process may delete a series after it
    for point in points:
        series = (point.measurement, msgspec.json.encode(dict(sorted(point.tags.items()))).decode())
        if series not in numbers:
            found = connection.execute(_FIND_SERIES, series).fetchone()
            numbers[series] = found[0] if found else connection.execute(_ADD_SERIES, series).lastrowid
        for name, value in point.fields.items():
            # SQLite has no type for truth values: a byte differs from every number and text.
            yield numbers[series], point.ts_ms, name, bytes([value]) if isinstance(value, bool) else value
