"""Some records at a time, as they were read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tallystream.aggregator.table.series import Row


class Chunk(NamedTuple):
    """Some records of a partition in offset order: offsets, append times in epoch ms, keys, values."""

    offsets: list[int]
    at_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Chunk:
        """Return rows by column."""
        rows = list(rows)
        offsets, at_ms = [row[0] for row in rows], [row[1] for row in rows]
        return cls(offsets, at_ms, [row[2] for row in rows], [row[3] for row in rows])

    def rows(self) -> Iterator[Row]:
        """Return them one by one."""
        return zip(*self, strict=True)
