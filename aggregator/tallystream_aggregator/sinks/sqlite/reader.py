"""Reads a local store while other processes write to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from tallystream.decoding import json_decoder
from tallystream_aggregator.sinks.base import Series
from tallystream_aggregator.sinks.sqlite.database import open_existing, translated_errors

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_decode_tags = json_decoder(dict[str, str])

_SERIES = "SELECT id, tags FROM series WHERE measurement = ?"
_BEFORE = """
SELECT field, ts, value FROM points WHERE series = ? AND field = ? AND ts < ? ORDER BY ts DESC LIMIT 1
"""
_WINDOW = "SELECT field, ts, value FROM points WHERE series = ? AND ts >= ? AND ts < ? AND field IN ({}) ORDER BY ts"


class LocalReader:
    """Reads one file. A store that does not exist yet is read as empty."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def measurements(self) -> list[str]:
        """Return the names of all measurements, sorted.

        Raises:
            ConfigError: the file is not a store, or a store of another version.
            SinkUnavailableError: the file can't be read now.
        """
        return sorted(name for (name,) in self._rows("SELECT DISTINCT measurement FROM series", ()))

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
        """Return series as in the protocol `PointReader`.

        Raises:
            ConfigError: the file is not a store, or a store of another version.
            SinkUnavailableError: the file can't be read now.
        """
        if start_ms >= end_ms:
            return []
        names = sorted(set(fields))
        window = _WINDOW.format(", ".join("?" for _ in names))
        found: list[Series] = []
        # Filtered in SQL first, so that of thousands of series only possible matches are decoded.
        sieve = [msgspec.json.encode({key: value}).decode()[1:-1] for key, value in (tags or {}).items()]
        for number, text in self._rows(_SERIES + " AND instr(tags, ?)" * len(sieve), (measurement, *sieve)):
            with translated_errors(self._path):
                own = _decode_tags(text)
            if tags and not tags.items() <= own.items():
                continue
            rows = []
            for name in names if last_before else ():
                rows += self._rows(_BEFORE, (number, name, start_ms))
            rows += self._rows(window, (number, start_ms, end_ms, *names))
            series = {name: Series(measurement, own, name) for name in names}
            for name, ts_ms, value in rows:
                series[name].times_ms.append(ts_ms)
                series[name].values.append(value != b"\0" if isinstance(value, bytes) else value)
            found += [one for one in series.values() if one.times_ms]
        return sorted(found, key=lambda one: (sorted(one.tags.items()), one.field))

    def close(self) -> None:
        """Close the file. It is safe to call this again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _rows(self, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        with translated_errors(self._path):
            if self._connection is None:
                self._connection = open_existing(self._path)
                if self._connection is None:
                    return []
            return self._connection.execute(query, values).fetchall()
