"""What stands on `metrics-table`: the newest record of each key, as a rebuild reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeGuard, TypeVar

import msgspec

from tallystream.decoding import json_decoder
from tallystream.errors import TallystreamError
from tallystream_aggregator.table.rows import BaseRow, FoldRow, LifeRow, ShardRow
from tallystream_aggregator.table.shards import shard_of
from tallystream_aggregator.versions import UNKNOWN, Version

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


Row = LifeRow | BaseRow | FoldRow | ShardRow
Place = tuple[int, bytes]
"""(partition, key)"""


class LatestRows:
    """The record of each key with the highest (epoch, batch), deletions among them: feed it the topic in any order.

    What a replaced writer appends later, row or deletion, changes nothing; nor does a record whose epoch is above
    `bound`, the highest of the ledger: no writer has taken it. `refused` counts these. None bounds nothing.

    A row counts in its shard's partition alone. When a table is cut into more shards, each of them writes its rows to
    its partition, and its own record after that. Until then its rows count where the cut before had them. So what an
    earlier cut left in other partitions never counts, nor what a cut left that was given up.
    """

    def __init__(self, bound: int | None = None) -> None:
        self.rows: dict[Place, Row] = {}
        self.epoch = 0
        self.refused = 0
        self._bound = bound
        self._deleted: dict[Place, Version] = {}

    def take(self, key: bytes, value: bytes | None, deleted_by: Version = UNKNOWN, partition: int = 0) -> None:
        """Take one record; `deleted_by` is the writer that a deletion names.

        Raises:
            RebuildError: the record is not one of the table's.
        """
        row = None if value is None else _row(key, value)
        version = deleted_by if row is None else _version(row)
        if self._bound is not None and version[0] > self._bound:
            self.refused += 1
            return
        self.epoch = max(self.epoch, version[0])
        place = (partition, key)
        known = self.rows.get(place)
        if version < (self._deleted.get(place, UNKNOWN) if known is None else _version(known)):
            return
        if row is None:
            self.rows.pop(place, None)
            self._deleted[place] = version
        else:
            self.rows[place] = row
            self._deleted.pop(place, None)

    def of_kind(self, kind: type[R]) -> list[tuple[bytes, R]]:
        """Return the keys and records of one kind that count."""
        cut = self._cut()
        if kind is LifeRow:
            return self._lives(cut)  # type: ignore[return-value]  # these are of that kind
        found = [(place, row) for place, row in self.rows.items() if isinstance(row, kind)]
        return [(key, row) for (partition, key), row in found if cut.has(partition, key, row)]

    def is_cut(self) -> bool:
        """Tell whether all shards have written their rows since the table was last cut, if it ever was."""
        cut = self._cut()
        return cut.since == 0 or len(cut.begun) == cut.shards

    def _cut(self) -> _Cut:
        of_shards = [row for (partition, _), row in self.rows.items() if _is_shard(row) and row.shard == partition]
        newest = max(of_shards, key=_version, default=None)
        if newest is None:
            return _Cut(1, 0, set(), 1, 0)
        shards, since = newest.shards, newest.since
        begun = {row.shard for row in of_shards if (row.shards, row.since) == (shards, since)}
        return _Cut(shards, since, begun, *(newest.before or (shards, since)))

    def _lives(self, cut: _Cut) -> list[tuple[bytes, LifeRow]]:
        # A life on a list stays where it was written: the shard of the list deletes it.
        listed = {
            (partition, *life)
            for (partition, key), row in self.rows.items()
            if isinstance(row, FoldRow) and cut.has(partition, key, row)
            for life in row.lives
        }
        found: list[tuple[bytes, LifeRow]] = []
        for (partition, key), row in self.rows.items():
            if isinstance(row, LifeRow) and (
                (partition, row.app, row.instance, row.life) in listed or cut.has_life(partition, row)
            ):
                found.append((key, row))
        return found


class _Cut(NamedTuple):
    """Into how many shards the table is cut, since which epoch, and which of them have written their rows since.

    `before_shards` and `before_since` say the same of the cut before. A table that was never cut has its own there.
    """

    shards: int
    since: int
    begun: set[int]
    before_shards: int
    before_since: int

    def has_life(self, partition: int, row: LifeRow) -> bool:
        """Tell whether the row of a life that is on no list counts."""
        instance = row.instance.encode()
        home = shard_of(instance, self.shards)
        if home in self.begun:
            return partition == home and row.epoch >= self.since
        return partition == shard_of(instance, self.before_shards) and row.epoch >= self.before_since

    def has(self, partition: int, key: bytes, row: Row) -> bool:
        """Tell whether the row of a shard, named by its key, counts."""
        if _is_shard(row):
            return partition == row.shard
        home = shard_in(key)
        if home in self.begun:
            return partition == home and row.epoch >= self.since
        known = home < self.before_shards or not isinstance(row, FoldRow)
        return partition == home and known and row.epoch >= self.before_since


def _is_shard(row: Row) -> TypeGuard[ShardRow]:
    return isinstance(row, ShardRow)


def _version(row: Row) -> Version:
    return row.epoch, row.batch


def _row(key: bytes, value: bytes) -> Row:
    try:
        row = _KINDS[str(_decode_key(key)[0])](value)
        if isinstance(row, (BaseRow, FoldRow)):
            shard_in(key)
        if isinstance(row, FoldRow):
            chunk_in(key)
    except (msgspec.DecodeError, KeyError, IndexError, ValueError) as error:
        raise foreign(key, error) from error
    return row


def shard_in(key: bytes) -> int:
    """Return the shard in the key of a base or a fold.

    Raises:
        ValueError: it is no number of a shard.
    """
    shard = _decode_key(key)[1]
    if not isinstance(shard, int) or shard < 0:
        raise ValueError(f"{shard!r} is no shard")
    return shard


def chunk_in(key: bytes) -> int:
    """Return the number of a list's record in its key."""
    return int(str(_decode_key(key)[3]))


def foreign(key: bytes, why: object) -> RebuildError:
    """Return the error for a record that no table has written."""
    return RebuildError(
        f"metrics-table: {key[:200]!r} is not a record of the table ({why}); if no aggregator wrote it, delete it by a "
        "record with its key and no value."
    )
