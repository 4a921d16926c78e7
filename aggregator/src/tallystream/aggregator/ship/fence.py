"""The fence against a stale writer: a sum of an epoch below the highest seen is not shipped.

The highest epoch is kept in a file beside the shipper's checkpoint. It is written before the first point of that epoch
is, so that a crash can only raise the fence too early: by then that epoch's writer had already taken over.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tallystream.aggregator.sums import Sum


class Fence:
    """Lets sums pass whose epoch is not below the highest seen; `dropped` counts the others. Used by one thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._highest = self._read()
        self.dropped = 0

    def admit(self, rows: Iterable[Sum]) -> list[Sum]:
        """Return the rows that may be shipped, in order."""
        admitted = []
        highest = self._highest
        for row in rows:
            if row.epoch < highest:
                self.dropped += 1
            else:
                highest = row.epoch
                admitted.append(row)
        if highest > self._highest:
            self._write(highest)
            self._highest = highest
        return admitted

    def _read(self) -> int:
        if not self._path.exists():
            return 0
        text = self._path.read_text(encoding="ascii")
        try:
            return int(text)
        except ValueError as error:
            raise TallystreamError(
                f"fence: {self._path} holds {text!r}, not an epoch; delete it if no old aggregator can be running."
            ) from error

    def _write(self, epoch: int) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        with new.open("w", encoding="ascii") as file:
            file.write(str(epoch))
            file.flush()
            os.fsync(file.fileno())
        new.replace(self._path)
