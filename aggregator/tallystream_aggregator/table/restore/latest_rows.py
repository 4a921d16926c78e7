"""The newest record of each key of `metrics-table`, which a rebuild starts from."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeGuard, TypeVar

import msgspec

from tallystream.decoding import json_decoder
from tallystream.errors import TallystreamError
from tallystream_aggregator.table.rows import ForgottenRow, LifeRow, ShardRow
from tallystream_aggregator.table.shards import shard_of
from tallystream_aggregator.versions import UNKNOWN, Version

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
    """The topic has no table that can be rebuilt."""


Row = LifeRow | ForgottenRow | ShardRow
RowKey = tuple[int, bytes]
"""(partition, key)"""


class LatestRows:
    """The record or deletion of each key with the highest (epoch, batch). Records may come in any order.

    So records that a replaced writer appends later change nothing. No writer has an epoch above `bound`, the highest
    one in the ledger: such a record is ignored and counted in `refused`. If `bound` is None, every epoch is accepted.

    A row counts only in the partition of its shard. When a table is split into more shards, each shard writes its rows
    to its partition and then its own record. Until it has written that record, its rows count where they were before.
    So rows of earlier splits in other partitions never count, nor those of an abandoned split, nor those of an earlier
    table on the same topic.
    """

    def __init__(self, bound: int | None = None) -> None:
        self.rows: dict[RowKey, Row] = {}
        self.epoch = 0
        self.refused = 0
        self._bound = bound
        self._deleted: dict[RowKey, Version] = {}
        self._unreadable: dict[RowKey, str] = {}

    def add(self, key: bytes, value: bytes | None, deleted_by: Version = UNKNOWN, partition: int = 0) -> None:
        """Add one record. `deleted_by` is the writer in the header of a deletion.

        A record that is not one of the table's is an error only if no later one has its key (`require_readable`).
        """
        row_key = (partition, key)
        self._unreadable.pop(row_key, None)
        try:
            row = None if value is None else _row(key, value)
        except (msgspec.DecodeError, KeyError, IndexError, ValueError) as error:
            self._unreadable[row_key] = str(error)
            return
        version = deleted_by if row is None else _version(row)
        if self._bound is not None and version[0] > self._bound:
            self.refused += 1
            return
        self.epoch = max(self.epoch, version[0])
        known = self.rows.get(row_key)
        if version < (self._deleted.get(row_key, UNKNOWN) if known is None else _version(known)):
            return
        if row is None:
            self.rows.pop(row_key, None)
            self._deleted[row_key] = version
        else:
            self.rows[row_key] = row
            self._deleted.pop(row_key, None)

    def require_readable(self) -> None:
        """Require that the last record of every key is one of the table's, or a deletion.

        Raises:
            RebuildError: one is not.
        """
        for (partition, key), why in self._unreadable.items():
            raise foreign_record_error(partition, key, why)

    def of_kind(self, kind: type[R]) -> list[tuple[bytes, R]]:
        """Return the keys and records of one kind that count."""
        split = self._split()
        if kind is LifeRow:
            return self._lives(split)  # type: ignore[return-value]  # these are of that kind
        found = [(row_key, row) for row_key, row in self.rows.items() if isinstance(row, kind)]
        return [(key, row) for (partition, key), row in found if split.has(partition, key, row)]

    def is_split_complete(self) -> bool:
        """Tell whether all shards have written their rows since the table was last split, if it ever was."""
        split = self._split()
        return split.is_first or len(split.begun) == split.shards

    def _split(self) -> _Split:
        of_shards = [row for (partition, _), row in self.rows.items() if _is_shard(row) and row.shard == partition]
        newest = max(of_shards, key=_version, default=None)
        if newest is None:
            return _Split(1, 0, set(), 1, 0)
        shards, since = newest.shards, newest.since
        begun = {row.shard for row in of_shards if (row.shards, row.since) == (shards, since)}
        return _Split(shards, since, begun, *(newest.before or (shards, since)))

    def _lives(self, split: _Split) -> list[tuple[bytes, LifeRow]]:
        lives = [(row_key, row) for row_key, row in self.rows.items() if isinstance(row, LifeRow)]
        return [(key, row) for (partition, key), row in lives if split.has_life(partition, row)]


class _Split(NamedTuple):
    """The number of shards, the epoch since which the table has it, and the shards that have written their rows since.

    `before_shards` and `before_since` are the same for the time before. If the number never changed, they are equal to
    `shards` and `since`, the epoch in which the table began.
    """

    shards: int
    since: int
    begun: set[int]
    before_shards: int
    before_since: int

    @property
    def is_first(self) -> bool:
        """Whether the table has the number of shards with which it began."""
        return self.since == self.before_since

    def has_life(self, partition: int, row: LifeRow) -> bool:
        """Tell whether the row of a life counts."""
        instance = row.instance.encode()
        home = shard_of(instance, self.shards)
        if home in self.begun:
            return partition == home and row.epoch >= self.since
        return partition == shard_of(instance, self.before_shards) and row.epoch >= self.before_since

    def has(self, partition: int, key: bytes, row: Row) -> bool:
        """Tell whether the row of a shard, named by its key, counts."""
        if _is_shard(row):
            return partition == row.shard and row.epoch >= self.before_since
        home = shard_in(key)
        if home in self.begun:
            return partition == home and row.epoch >= self.since
        return partition == home and row.epoch >= self.before_since


def _is_shard(row: Row) -> TypeGuard[ShardRow]:
    return isinstance(row, ShardRow)


def _version(row: Row) -> Version:
    return row.epoch, row.batch


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
