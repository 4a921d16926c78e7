"""The fence against replaced writers: a row is not shipped if an earlier row of the topic has a higher epoch.

A row whose epoch no writer has taken (kafka.ledger) is not shipped either. Both decisions depend on earlier rows and on
the ledger, and a batch that runs again after a crash must decide the same. So a file beside the shipper's checkpoint
has the offsets at which the highest epoch rose, and those of the rejected rows. It is written before the first point of
the batch.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from tallystream.decoding import json_decoder
from tallystream.errors import TallystreamError
from tallystream_aggregator import files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tallystream_aggregator.kafka.ledger import Epochs

log = logging.getLogger(__name__)


class Written(Protocol):
    """A row with the epoch of its writer."""

    @property
    def epoch(self) -> int:
        """The writer's epoch."""


R = TypeVar("R", bound=Written)


class Rise(NamedTuple):
    """The row at `offset` was the first of `epoch`, the highest until then. `unknown`: no writer has taken it."""

    offset: int
    epoch: int
    unknown: bool = False


_decode = json_decoder(list[Rise])


class Fence(Generic[R]):
    """Admits rows whose epoch a writer has taken and is not below that of an earlier row. For one thread.

    `dropped` counts the other rows.

    Raises:
        TallystreamError: the file is damaged or can't be read.
    """

    def __init__(self, path: Path, epochs: Epochs) -> None:
        self._path = path
        self._epochs = epochs
        self._rises = self._read()
        self.dropped = 0

    def admit(self, rows: Sequence[tuple[int, R]]) -> list[R]:
        """Return the rows that may be shipped. `rows` are (offset, row) of one topic, ascending by offset.

        Raises what `epochs` raises if the ledger can't be read. Then nothing has changed.
        """
        if not rows:
            return []
        first = rows[0][0]
        # Of the rises before this batch, only the last one is needed.
        kept = [rise for rise in self._rises if rise.offset < first and not rise.unknown][-1:]
        highest = max((rise.epoch for rise in kept), default=0)
        repeated = [rise for rise in self._rises if rise.offset >= first]  # this batch ran before
        skipped = {rise.offset for rise in repeated if rise.unknown}
        risen = [rise for rise in repeated if not rise.unknown]
        bound = max(
            self._epochs.bound(row.epoch for offset, row in rows if offset not in skipped),
            max((rise.epoch for rise in risen), default=highest),
        )
        admitted: list[R] = []
        unknown: list[Rise] = []
        lower: list[tuple[int, int]] = []
        for offset, row in rows:
            while risen and risen[0].offset < offset:
                kept.append(risen.pop(0))
                highest = max(highest, kept[-1].epoch)
            if offset in skipped or row.epoch > bound:
                unknown.append(Rise(offset, row.epoch, unknown=True))
            elif row.epoch >= highest:
                admitted.append(row)
                if row.epoch > highest:
                    highest = row.epoch
                    kept.append(Rise(offset, row.epoch))
            else:
                lower.append((offset, row.epoch))
        if lower:
            log.warning(
                "%d rows are not shipped: an earlier row has a higher epoch (the highest is %d); "
                "the first is at offset %d, epoch %d",
                len(lower),
                highest,
                *lower[0],
            )
        if unknown:
            log.warning(
                "%d rows are not shipped: no aggregator has taken their epoch; the first is at offset %d, epoch %d",
                len(unknown),
                *unknown[0][:2],
            )
        self.dropped += len(rows) - len(admitted)
        self._keep(sorted({*kept, *risen, *unknown}))
        return admitted

    def _keep(self, rises: list[Rise]) -> None:
        if rises != self._rises:
            files.write_file(self._path, msgspec.json.encode(rises))
            self._rises = rises

    def _read(self) -> list[Rise]:
        try:
            return _decode(self._path.read_bytes())
        except FileNotFoundError:
            return []
        except OSError as error:
            raise TallystreamError(f"fence: {self._path} can't be read: {error.strerror}.") from error
        except msgspec.DecodeError as error:
            raise TallystreamError(
                f"fence: {self._path} is damaged ({error}); delete it if no old aggregator can be running."
            ) from error
