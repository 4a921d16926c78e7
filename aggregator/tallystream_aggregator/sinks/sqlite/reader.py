"""Reads a local store while other processes write to it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import msgspec

from tallystream.decoding import json_decoder
from tallystream_aggregator.sinks.base import Field, Series
from tallystream_aggregator.sinks.sqlite.database import connect, has_tables, translated_errors

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping, Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

DAMAGED = (msgspec.DecodeError, TypeError)
"""The errors of decoding a damaged value: TypeError for one that is not a text in SQLite."""

_decode_fields = json_decoder(dict[str, Field])
_decode_tags = json_decoder(dict[str, str])

_SERIES = "SELECT id, tags FROM series WHERE measurement = ?"
_WINDOW = "SELECT ts, fields FROM points WHERE series = ? AND ts >= ? AND ts < ? ORDER BY ts"
# has_field instead of a JSON path: SQLite before 3.45 does not find a key with an escape by its path.
# As bytes: SQLite would fail at a text that is not UTF-8.
_BEFORE = """
SELECT ts, fields FROM points WHERE series = ? AND ts < ? AND has_field(CAST(fields AS BLOB), ?)
ORDER BY ts DESC LIMIT 1
"""


class LocalReader:
    """Reads one file. A store that does not exist yet is read as empty.

    A damaged point or series is skipped. The first one is logged as a warning.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._warned = False

    def measurements(self) -> list[str]:
        """Return the names of all measurements, sorted.

        Raises:
            ConfigError: the file is not a store, or a store of another version.
            SinkUnavailableError: the file can't be read now.
        """
        rows = self._rows("SELECT DISTINCT measurement FROM series", ())
        return sorted(bytes(name).decode(errors="replace") for (name,) in rows)

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
        found: list[Series] = []
        # Filtered in SQL first, so that of thousands of series only possible matches are decoded.
        sieve = [msgspec.json.encode({key: value}).decode()[1:-1] for key, value in (tags or {}).items()]
        query = _SERIES + " AND instr(tags, ?)" * len(sieve)
        for number, text in self._rows(query, (measurement, *sieve)):
            try:
                own = _decode_tags(text)
            except DAMAGED:
                self._warn_once(f"the tags of a series of {measurement!r} are damaged: it is skipped, as others may be")
                continue
            if tags and not tags.items() <= own.items():
                continue
            series = {name: Series(measurement, own, name) for name in sorted(set(fields))}
            if last_before:
                for name, one in series.items():
                    for ts, values in self._rows(_BEFORE, (number, start_ms, name)):
                        self._add(measurement, {name: one}, ts, values)
            for ts, values in self._rows(_WINDOW, (number, start_ms, end_ms)):
                self._add(measurement, series, ts, values)
            found += [one for one in series.values() if one.times_ms]
        return sorted(found, key=lambda one: (sorted(one.tags.items()), one.field))

    def close(self) -> None:
        """Close the file. It is safe to call this again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _add(self, measurement: str, series: Mapping[str, Series], ts_ms: int, values: bytes) -> None:
        try:
            decoded = _decode_fields(values)
        except DAMAGED:
            self._warn_once(f"a point of {measurement!r} at {ts_ms} is damaged and is skipped, as others may be")
            return
        for name, one in series.items():
            if name in decoded:
                one.times_ms.append(ts_ms)
                one.values.append(decoded[name])

    def _warn_once(self, what: str) -> None:
        if not self._warned:
            self._warned = True
            log.warning("local store %s: %s", self._path, what)

    def _rows(self, query: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        with translated_errors(self._path):
            if self._connection is None:
                if not self._path.exists():
                    return []
                self._connection = connect(self._path, make=False)
                self._connection.execute("PRAGMA query_only = 1")
                self._connection.text_factory = bytes  # the decoder reports a text that is not UTF-8
                self._connection.create_function("has_field", 2, _has_field, deterministic=True)
            if not has_tables(self._connection):
                return []
            return self._connection.execute(query, values).fetchall()


def _has_field(values: bytes, name: str) -> bool:
    try:
        return name in _decode_fields(values)
    except DAMAGED:
        return False
