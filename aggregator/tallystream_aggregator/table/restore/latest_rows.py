"""The newest record of each key of `metrics-table`, from which the table is made again."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from tallystream.decoding import json_decoder
from tallystream.errors import TallystreamError
from tallystream_aggregator.table.rows import ForgottenRow, LifeRow, ShardRow

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R", LifeRow, ForgottenRow, ShardRow)

_KINDS: dict[str, Callable[[bytes], LifeRow | ForgottenRow | ShardRow]] = {
    "life": json_decoder(LifeRow),
    "forgotten": json_decoder(ForgottenRow),
    "shard": json_decoder(ShardRow),
}
_decode_key = json_decoder(list[object])


class RebuildError(TallystreamError):
    """The topic has no table that can be made again."""


Row = LifeRow | ForgottenRow | ShardRow
RowKey = tuple[int, bytes]
"""(partition, key)"""


class LatestRows:
    """The newest record of each key in each partition. Add them in offset order."""

    def __init__(self) -> None:
        self.rows: dict[RowKey, Row] = {}
        self._unreadable: dict[RowKey, str] = {}

    def add(self, key: bytes, value: bytes | None, partition: int = 0) -> None:
        """Add one record.

        A record that is not one of the table's is an error only if no later one has its key (`require_readable`).
        """
        row_key = (partition, key)
        self._unreadable.pop(row_key, None)
        self.rows.pop(row_key, None)
        if value is None:
            return
        try:
            self.rows[row_key] = _row(key, value)
        except (msgspec.DecodeError, KeyError, IndexError, ValueError) as error:
            self._unreadable[row_key] = str(error)

    def require_readable(self) -> None:
        """Require that the last record of every key is one of the table's, or a deletion.

        Raises:
            RebuildError: one is not.
        """
        for (partition, key), why in self._unreadable.items():
            raise foreign_record_error(partition, key, why)

    def of_kind(self, kind: type[R]) -> list[tuple[bytes, R]]:
        """Return the keys and records of one kind."""
        return [(key, row) for (_, key), row in self.rows.items() if isinstance(row, kind)]


def _row(key: bytes, value: bytes) -> Row:
    row = _KINDS[str(_decode_key(key)[0])](value)
    if isinstance(row, ForgottenRow):
        shard_in(key)
    return row


def shard_in(key: bytes) -> int:
    """Return the shard in the key of a record of forgotten lives.

    Raises:
        ValueError: it is not the number of a shard.
    """
    shard = _decode_key(key)[1]
    if not isinstance(shard, int) or shard < 0:
        raise ValueError(f"{shard!r} is not a shard")
    return shard


def foreign_record_error(partition: int, key: bytes, why: object) -> RebuildError:
    """Return the error for a record that no table has written."""
    return RebuildError(
        f"metrics-table: {key[:200]!r} is not a record of the table ({why}); if no aggregator wrote it, delete it by a "
        f"record with its key and no value in partition {partition}."
    )
