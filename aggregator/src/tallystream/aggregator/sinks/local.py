"""The local store: SQLite in WAL mode, no server, several processes writing and reading one file.

Why SQLite: docs/decisions/0001-local-store.md. One row is one point: its fields are a JSON object, so that a second
write of the same point merges into it (json_patch, RFC 7396: no field is ever null).
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from tallystream.aggregator.sinks.base import Field, Point, Series, SinkUnavailableError
from tallystream.reporter.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

DAY_MS = 86_400_000
SCHEMA_VERSION = 1
BUSY_S = 30.0
"""How long a writer waits for another process's transaction before it says that the store is unavailable."""

SWEEP_EVERY_MS = 600_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS series (
    id INTEGER PRIMARY KEY, measurement TEXT NOT NULL, tags TEXT NOT NULL, UNIQUE (measurement, tags));
CREATE TABLE IF NOT EXISTS points (
    series INTEGER NOT NULL, ts INTEGER NOT NULL, fields TEXT NOT NULL, PRIMARY KEY (series, ts)) WITHOUT ROWID;
"""
_UPSERT = """
INSERT INTO points (series, ts, fields) VALUES (?, ?, ?)
ON CONFLICT (series, ts) DO UPDATE SET fields = json_patch(fields, excluded.fields)
"""
_fields = msgspec.json.Decoder(dict[str, Field])
_tags = msgspec.json.Decoder(dict[str, str])


@contextmanager
def _said(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours: what may pass is unavailable, what never will is a wrong setting."""
    try:
        yield
    except (sqlite3.OperationalError, OSError) as error:
        raise SinkUnavailableError(f"local store {path}: {error}.") from error
    except sqlite3.DatabaseError as error:
        raise ConfigError("--store", f"local:{path}", f"it is not a store ({error}): name another file") from error


def _open(path: Path, uri_mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.resolve().as_uri()}?mode={uri_mode}",
        uri=True,
        timeout=BUSY_S,
        isolation_level=None,
        check_same_thread=False,
    )
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version not in (0, SCHEMA_VERSION):
        connection.close()
        raise ConfigError(
            "--store", f"local:{path}", f"its schema is version {version}, {SCHEMA_VERSION} is known here"
        )
    return connection


class LocalStore:
    """Writes points to one SQLite file. Level: every point. Delivery: as the protocol says; `write` is durable at once.

    `retention_ms` is how long a point is kept, by its own time against `clock` (epoch ms); 0 keeps all. Points and
    series beyond it are deleted at `setup` and every ten minutes of writing.
    """

    def __init__(
        self, path: Path, *, retention_ms: int = 30 * DAY_MS, clock: Callable[[], int] = lambda: time.time_ns() // 10**6
    ) -> None:
        self._path = path
        self._retention_ms = retention_ms
        self._clock = clock
        self._swept_ms = 0
        self._connection: sqlite3.Connection | None = None
        self._series: dict[tuple[str, str], int] = {}

    def setup(self) -> None:
        """Make the file and its tables, and delete what is beyond the retention; safe to call again.

        Raises:
            ConfigError: the file is something else, or of another version.
            SinkUnavailableError: it can't be opened now.
        """
        with _said(self._path):
            connection = self._opened()
            connection.executescript(_SCHEMA)
            connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            self._sweep(connection)

    def write(self, points: Sequence[Point]) -> None:
        """Write the points in one transaction: all of them or, with an error, none.

        Raises:
            SinkUnavailableError: another process holds the file too long, or the disk is full.
        """
        with _said(self._path):
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            try:
                connection.executemany(_UPSERT, (self._row(connection, point) for point in points))
                if self._retention_ms and self._clock() - self._swept_ms >= SWEEP_EVERY_MS:
                    self._sweep(connection)
                connection.execute("COMMIT")
            except BaseException:
                self._series.clear()  # numbers given in this transaction are gone with it
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

    def flush(self) -> None:
        """Return at once: `write` is durable when it returns."""

    def close(self) -> None:
        """Close the file; safe to call again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = _open(self._path, "rwc")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")  # NORMAL would lose the last writes with the power
            self._connection = connection
        return self._connection

    def _row(self, connection: sqlite3.Connection, point: Point) -> tuple[int, int, str]:
        tags = msgspec.json.encode(dict(sorted(point.tags.items()))).decode()
        key = (point.measurement, tags)
        number = self._series.get(key)
        if number is None:
            connection.execute("INSERT OR IGNORE INTO series (measurement, tags) VALUES (?, ?)", key)
            found = connection.execute("SELECT id FROM series WHERE measurement = ? AND tags = ?", key).fetchone()
            number = self._series[key] = int(found[0])
        return number, point.ts_ms, msgspec.json.encode(dict(point.fields)).decode()

    def _sweep(self, connection: sqlite3.Connection) -> None:
        self._swept_ms = self._clock()
        if not self._retention_ms:
            return
        connection.execute("DELETE FROM points WHERE ts < ?", (self._swept_ms - self._retention_ms,))


class LocalReader:
    """Reads a local store, while others write it; a store that is not there yet has nothing in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def measurements(self) -> list[str]:
        """Return the names of all measurements, sorted.

        Raises:
            SinkUnavailableError: the file can't be read now.
        """
        rows = self._rows("SELECT DISTINCT measurement FROM series ORDER BY measurement", ())
        return [str(name) for (name,) in rows]

    def read(
        self,
        measurement: str,
        fields: Sequence[str],
        *,
        start_ms: int,
        end_ms: int,
        tags: Mapping[str, str] | None = None,
        last_before: bool = False,
    ) -> list[Series]:
        """Return series as the protocol says.

        Raises:
            SinkUnavailableError: the file can't be read now.
        """
        found: list[Series] = []
        known = self._rows("SELECT id, tags FROM series WHERE measurement = ? ORDER BY tags", (measurement,))
        for number, text in known:
            own = _tags.decode(text)
            if tags and not tags.items() <= own.items():
                continue
            series = {name: Series(measurement, own, name) for name in fields}
            if last_before:
                self._begin_before(number, start_ms, series)
            window = "SELECT ts, fields FROM points WHERE series = ? AND ts >= ? AND ts < ? ORDER BY ts"
            for ts, values in self._rows(window, (number, start_ms, end_ms)):
                _add(series, ts, values)
            found += [one for one in series.values() if one.times_ms]
        return found

    def close(self) -> None:
        """Close the file; safe to call again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _begin_before(self, number: int, start_ms: int, series: dict[str, Series]) -> None:
        for name, one in series.items():
            path = '$."' + name.replace('"', '\\"') + '"'
            query = (
                "SELECT ts, fields FROM points WHERE series = ? AND ts < ? AND json_type(fields, ?) IS NOT NULL "
                "ORDER BY ts DESC LIMIT 1"
            )
            for ts, values in self._rows(query, (number, start_ms, path)):
                _add({name: one}, ts, values)

    def _rows(self, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        with _said(self._path):
            if self._connection is None:
                if not self._path.exists():
                    return []
                # Not mode=ro: a reader of a WAL may have to make its shared-memory file.
                self._connection = _open(self._path, "rw")
                self._connection.execute("PRAGMA query_only = 1")
            if not self._connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'points'").fetchone():
                return []
            return self._connection.execute(query, values).fetchall()


def _add(series: Mapping[str, Series], ts_ms: int, values: str) -> None:
    decoded = _fields.decode(values)
    for name, one in series.items():
        if name in decoded:
            one.times_ms.append(ts_ms)
            one.values.append(decoded[name])
