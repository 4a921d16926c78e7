"""What stands on `metrics-table`: the newest record of each key, as a rebuild reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import msgspec

from tallystream.aggregator.table.published import BaseRow, FoldRow, LifeRow, ShardRow
from tallystream.aggregator.versions import UNKNOWN, Version
from tallystream.reporter.decoding import json_decoder
from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R", LifeRow, BaseRow, FoldRow, ShardRow)

_KINDS: dict[str, Callable[[bytes], LifeRow | BaseRow | FoldRow | ShardRow]] = {
    "life": json_decoder(LifeRow),
    "base": json_decoder(BaseRow),
    "fold": json_decoder(FoldRow),
    "shard": json_decoder(ShardRow),
}
_decode_key = json_decoder(list[object])


class RebuildError(TallystreamError):
    """The topic does not hold a table."""


class Standing:
    """The record of each key with the highest (epoch, batch), deletions among them: feed it the topic in any order.

    What a replaced writer appends later, row or deletion, changes nothing; nor does a record whose epoch is above
    `bound`, the highest of the ledger: no writer has taken it. `refused` counts these. None bounds nothing.
    """

    def __init__(self, bound: int | None = None) -> None:
        self.rows: dict[bytes, LifeRow | BaseRow | FoldRow | ShardRow] = {}
        self.epoch = 0
        self.refused = 0
        self._bound = bound
        self._deleted: dict[bytes, Version] = {}

    def take(self, key: bytes, value: bytes | None, deleted_by: Version = UNKNOWN) -> None:
        """Take one record; `deleted_by` is the writer that a deletion names.

        Raises:
            RebuildError: the record is not one of the table's.
        """
        row = None if value is None else self._row(key, value)
        version = deleted_by if row is None else (row.epoch, row.batch)
        if self._bound is not None and version[0] > self._bound:
            self.refused += 1
            return
        self.epoch = max(self.epoch, version[0])
        known = self.rows.get(key)
        if version < (self._deleted.get(key, UNKNOWN) if known is None else (known.epoch, known.batch)):
            return
        if row is None:
            self.rows.pop(key, None)
            self._deleted[key] = version
        else:
            self.rows[key] = row
            self._deleted.pop(key, None)

    def _row(self, key: bytes, value: bytes) -> LifeRow | BaseRow | FoldRow | ShardRow:
        try:
            row = _KINDS[str(_decode_key(key)[0])](value)
            if isinstance(row, (BaseRow, FoldRow)):
                shard_in(key)
        except (msgspec.DecodeError, KeyError, IndexError, ValueError) as error:
            raise foreign(key, error) from error
        return row

    def of_kind(self, kind: type[R]) -> list[tuple[bytes, R]]:
        """Return the keys and records of one kind."""
        return [(key, row) for key, row in self.rows.items() if isinstance(row, kind)]


def shard_in(key: bytes) -> int:
    """Return the shard in the key of a base or a fold.

    Raises:
        ValueError: it is no number of a shard.
    """
    shard = _decode_key(key)[1]
    if not isinstance(shard, int) or shard < 0:
        raise ValueError(f"{shard!r} is no shard")
    return shard


def foreign(key: bytes, why: object) -> RebuildError:
    """Return the error for a record that no table has written."""
    return RebuildError(
        f"metrics-table: {key[:200]!r} is not a record of the table ({why}); if no aggregator wrote it, delete it by a "
        "record with its key and no value."
    )
