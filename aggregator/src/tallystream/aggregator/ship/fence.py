"""The fence against a stale writer: a row of a lower epoch than one that came before it in the topic is not shipped.

Whether a row passes depends only on the rows before it, so that a batch that runs again after a crash ships the same
rows. What came before is kept in a file beside the shipper's checkpoint: where the highest epoch rose, and to what. It
is written before the first point of the batch is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from tallystream.aggregator import private
from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path


class Written(Protocol):
    """Anything that says under which epoch it was written."""

    @property
    def epoch(self) -> int:
        """The writer's epoch."""


R = TypeVar("R", bound=Written)


class Rise(NamedTuple):
    """The row at `offset` was the first of `epoch`, the highest until then."""

    offset: int
    epoch: int


class Fence(Generic[R]):
    """Lets rows pass whose epoch is not below the highest before them; `dropped` counts the others. For one thread.

    Raises:
        TallystreamError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rises = self._read()
        self.dropped = 0

    def admit(self, rows: Sequence[tuple[int, R]]) -> list[R]:
        """Return those of the rows (offset, row) of one topic, ascending by offset, that may be shipped."""
        if not rows:
            return []
        first = rows[0][0]
        # Of what lies before this batch only the last rise can matter again.
        rises = [rise for rise in self._rises if rise.offset < first][-1:]
        rises += [rise for rise in self._rises if rise.offset >= first]  # it runs again: compaction may hide some rows
        admitted = []
        for offset, row in rows:
            highest = max((rise.epoch for rise in rises if rise.offset < offset), default=0)
            if row.epoch < highest:
                self.dropped += 1
                continue
            admitted.append(row)
            if row.epoch > highest:
                rises.append(Rise(offset, row.epoch))
        self._keep(_ascending(rises))
        return admitted

    def _keep(self, rises: list[Rise]) -> None:
        if rises != self._rises:
            private.write_file(self._path, msgspec.json.encode(rises))
            self._rises = rises

    def _read(self) -> list[Rise]:
        if not self._path.exists():
            return []
        content = self._path.read_bytes()
        try:
            return msgspec.json.decode(content, type=list[Rise])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise TallystreamError(
                f"fence: {self._path} is damaged ({error}); delete it if no old aggregator can be running."
            ) from error


def _ascending(rises: Iterable[Rise]) -> list[Rise]:
    kept: list[Rise] = []
    for rise in sorted(rises):
        if not kept or rise.epoch > kept[-1].epoch:
            kept.append(rise)
    return kept
