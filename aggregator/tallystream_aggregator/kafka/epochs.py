"""Which epochs a record can have: none above those that the ledger has.

A writer takes its epoch in the ledger before it writes a sum or a row. A reader that has read a record, and reads the
ledger after that, finds the record's epoch there, or a higher one. If not, no aggregator wrote the record. Without this
bound, after one record with an epoch of 2^62 every record of the true writer would count as that of a replaced one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tallystream_aggregator.kafka import ledger
from tallystream_aggregator.kafka.reader import read_topic
from tallystream_aggregator.versions import version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

MAX_EPOCH = 2**32
"""More starts than any table has: a higher epoch on a topic is no aggregator's, also where the ledger has no rows."""


class Epochs:
    """Remembers the highest epoch of the ledger; `ask` returns it as it is now, None for a ledger without rows.

    A ledger without rows (retention has deleted them) bounds them by `MAX_EPOCH` alone.
    """

    def __init__(self, ask: Callable[[], int | None]) -> None:
        self._ask = ask
        self._known = 0

    def bound(self, epochs: Iterable[int]) -> int:
        """Return the highest epoch that is a writer's, for records with these epochs that have been read already.

        The ledger is asked only where one of them is higher than it was known to have; what `ask` raises is raised.
        """
        highest = max(epochs, default=0)
        if highest > self._known:
            found = self._ask()
            if found is None:
                return min(highest, MAX_EPOCH)
            self._known = max(self._known, found)
        return self._known


def epochs_of(ledger_topic: str, kafka: Mapping[str, str], *, timeout: float = 10.0) -> Epochs:
    """Return the epochs of a ledger; `bound` raises what tallystream_aggregator.kafka.ledger.read_rows does."""
    return Epochs(lambda: ledger.highest_epoch(ledger.read_rows(ledger_topic, kafka, timeout=timeout)))


def highest_on(topics: Iterable[str], kafka: Mapping[str, str]) -> int:
    """Return the highest epoch of the topics' rows and deletions, 0 where there is none. Reads all of them.

    Raises what tallystream_aggregator.kafka.reader.read_topic does.
    """
    epochs = (
        read.deleted_by[0] if read.value is None else (version_of(read.value) or (0, 0))[0]
        for topic in topics
        for read in read_topic(topic, kafka)
    )
    return max((epoch for epoch in epochs if epoch <= MAX_EPOCH), default=0)
