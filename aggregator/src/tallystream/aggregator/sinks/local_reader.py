"""Reads a local store, while other processes write it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tallystream.aggregator.sinks._sqlite import connect, has_tables, said
from tallystream.aggregator.sinks.base import Field, Series
from tallystream.reporter.decoding import json_decoder

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_decode_fields = json_decoder(dict[str, Field])
_decode_tags = json_decoder(dict[str, str])

_SERIES = "SELECT id, tags FROM series WHERE measurement = ?"
_WINDOW = "SELECT ts, fields FROM points WHERE series = ? AND ts >= ? AND ts < ? ORDER BY ts"
# Not a JSON path: SQLite before 3.45 finds no key by its path that has an escape in it.
_BEFORE = "SELECT ts, fields FROM points WHERE series = ? AND ts < ? AND has_field(fields, ?) ORDER BY ts DESC LIMIT 1"


class LocalReader:
    """Reads one file; a store that is not there yet has nothing in it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def measurements(self) -> list[str]:
        """Return the names of all measurements, sorted.

        Raises:
            ConfigError: the file is something else, or of another version.
            SinkUnavailableError: the file can't be read now.
        """
        return sorted(str(name) for (name,) in self._rows("SELECT DISTINCT measurement FROM series", ()))

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
            ConfigError: the file is something else, or of another version.
            SinkUnavailableError: the file can't be read now.
        """
        if start_ms >= end_ms:
            return []
        found: list[Series] = []
        # A first sieve in SQL: of thousands of series only those are decoded that may be meant.
        sieve = [msgspec.json.encode({key: value}).decode()[1:-1] for key, value in (tags or {}).items()]
        query = _SERIES + " AND instr(tags, ?)" * len(sieve)
        for number, text in self._rows(query, (measurement, *sieve)):
            own = _decode_tags(text)
            if tags and not tags.items() <= own.items():
                continue
            series = {name: Series(measurement, own, name) for name in sorted(set(fields))}
            if last_before:
                for name, one in series.items():
                    for ts, values in self._rows(_BEFORE, (number, start_ms, name)):
                        _add({name: one}, ts, values)
            for ts, values in self._rows(_WINDOW, (number, start_ms, end_ms)):
                _add(series, ts, values)
            found += [one for one in series.values() if one.times_ms]
        return sorted(found, key=lambda one: (sorted(one.tags.items()), one.field))

    def close(self) -> None:
        """Close the file; safe to call again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _rows(self, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        with said(self._path):
            if self._connection is None:
                if not self._path.exists():
                    return []
                self._connection = connect(self._path, make=False)
                self._connection.execute("PRAGMA query_only = 1")
                self._connection.create_function("has_field", 2, _has_field, deterministic=True)
            if not has_tables(self._connection):
                return []
            return self._connection.execute(query, values).fetchall()


def _has_field(values: str, name: str) -> bool:
    return name in _decode_fields(values)


def _add(series: Mapping[str, Series], ts_ms: int, values: str) -> None:
    decoded = _decode_fields(values)
    for name, one in series.items():
        if name in decoded:
            one.times_ms.append(ts_ms)
            one.values.append(decoded[name])
