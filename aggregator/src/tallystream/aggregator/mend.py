"""Repair what a replaced writer wrote last: on a compacted topic the last record of a key stays.

Readers take the highest (epoch, batch). Compaction keeps the last record, which may be a replaced writer's, or one of
an epoch that no writer has taken. So the active writer looks at what is appended and, where such a record is the last
of its key, appends the newest one again. The topics' `min.compaction.lag.ms` keeps that one until this is done.

A look begins where the last one ended, that of the writer before included: the ledger says where (`checked`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tallystream.aggregator import clients
from tallystream.aggregator.delivering import Outgoing, deliver, producer_for
from tallystream.aggregator.ledger import QUERY
from tallystream.aggregator.reading import read_from
from tallystream.aggregator.versions import HEADER, Version, deletion_header, under_epoch, version_of
from tallystream.aggregator.watermarks import partitions_of, watermarks
from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tallystream.aggregator.epochs import Epochs
    from tallystream.aggregator.ledger import LedgerRow
    from tallystream.aggregator.reading import Read

log = logging.getLogger(__name__)

_NONE: Version = (-1, 0)
"""The version of a record that names no writer."""

Key = tuple[int, bytes]
"""(partition, key)"""


class Checked(NamedTuple):
    """How far the writers before have looked: topic → partition → the next offset; `epoch` is that of the last one."""

    offsets: Mapping[str, Mapping[str, int]]
    epoch: int


def last_checked(rows: Iterable[LedgerRow]) -> Checked:
    """Return how far the writers of these rows of the ledger have looked; nowhere where none says so."""
    found = Checked({}, 0)
    for row in rows:
        if row.query == QUERY and row.checked:
            found = Checked(row.checked, row.epoch)
    return found


class Found(NamedTuple):
    """A record of a key: its value, None for a deletion, and its version."""

    version: Version
    value: bytes | None


@dataclass(slots=True)
class Order:
    """The highest epoch of each partition so far, in the order of offsets; `first` is that before the first record."""

    first: int = 0
    highest: dict[int, int] = field(default_factory=dict)

    def admits(self, partition: int, epoch: int) -> bool:
        """Tell whether the epoch is not below one that came before; `epoch` is a writer's."""
        before = self.highest.get(partition, self.first)
        self.highest[partition] = max(before, epoch)
        return epoch >= before


class Watch:
    """Looks at the partitions of a topic, from where `checked` says or the beginning; for one thread.

    `epoch` is ours, `timeout` in seconds. `deletes` tells whether a deleted key never comes back on its own: then a
    replaced writer's record without a newer one is deleted, as the broker may have removed the deletion.

    Delivery: what is appended again is what was there; a record that is appended twice says the same.
    """

    def __init__(
        self,
        topic: str,
        kafka: Mapping[str, str],
        epochs: Epochs,
        *,
        epoch: int,
        checked: Checked = Checked({}, 0),  # noqa: B008 (a tuple that nobody changes)
        deletes: bool = False,
        timeout: float = 10.0,
    ) -> None:
        self._topic = topic
        self._epochs = epochs
        self._epoch = epoch
        self._deletes = deletes
        self._timeout = timeout
        self._producer = producer_for(kafka, timeout=timeout)
        self._consumer = clients.consumer(
            {
                **kafka,
                "group.id": "tallystream-mend",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        self._at = {int(partition): offset for partition, offset in checked.offsets.get(topic, {}).items()}
        self._order = Order(checked.epoch)
        self._opened = self._ends()

    @property
    def checked(self) -> dict[str, int]:
        """Partition → the offset before which nothing is left to repair."""
        return {str(partition): offset for partition, offset in self._at.items()}

    def look(self) -> int:
        """Read what has come since the last look, repair what has to be, and return how many keys that were.

        Raises:
            KafkaException: the broker did not answer, or take a record, in time; the next look tries again.
        """
        order = Order(self._order.first, dict(self._order.highest))
        try:
            ends = self._ends()
            found = self._look(order, ends)
        except TallystreamError as error:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, str(error))) from error  # noqa: SLF001 (librdkafka's name for it)
        self._at, self._order = ends, order
        return found

    def close(self) -> None:
        """Release the connections."""
        self._consumer.close()

    def _look(self, order: Order, ends: Mapping[int, int]) -> int:
        stale: set[Key] = set()
        above: dict[Key, int] = {}
        known = max(self._epoch, self._epochs.bound(()))
        for key, (version, _) in self._found(self._at, ends):
            if version[0] > known:
                above[key] = max(version[0], above.get(key, 0))
            elif not order.admits(key[0], version[0]):
                stale.add(key)
        # Asked after the records were read: what is above it then has an epoch that no writer has taken.
        bound = max(known, self._epochs.bound(above.values()))
        forged = {key for key, epoch in above.items() if epoch > bound}
        for key, epoch in above.items():
            if epoch <= bound:
                order.admits(key[0], epoch)
        if wrong := stale | forged:
            self._repair(wrong, forged - stale, bound)
        return len(wrong)

    def _repair(self, keys: set[Key], forged: set[Key], bound: int) -> None:
        log.warning(
            "%s: a writer that was replaced, or that has taken no epoch, has written %d keys; the newest records of "
            "these are appended again",
            self._topic,
            len(keys),
        )
        while again := self._wrong(keys, forged, bound):
            self._append(again)

    def _wrong(self, keys: set[Key], forged: set[Key], bound: int) -> list[Outgoing]:
        """Return the newest record of each of the keys of which it is not the last."""
        # What we have written is the newest. All else may lie anywhere before.
        ends = self._ends()
        newest, last = self._newest(keys, self._opened, ends, Order(self._epoch), bound)
        if older := keys - newest.keys():
            found, last_of_older = self._newest(older, {}, ends, Order(), bound)
            newest, last = newest | found, last | last_of_older
        again = []
        for key in sorted(keys):
            wanted = newest.get(key)
            if wanted is None and self._deletes and key not in forged:
                wanted = Found(_NONE, None)
            if wanted is not None and wanted != last.get(key):
                again.append(self._outgoing(key, wanted))
        return again

    def _newest(
        self, keys: set[Key], starts: Mapping[int, int], ends: Mapping[int, int], order: Order, bound: int
    ) -> tuple[dict[Key, Found], dict[Key, Found]]:
        """Return of each of the keys the record with the highest version, and the last; `order` is before `starts`.

        A record out of order is a replaced writer's, and not the newest.
        """
        newest: dict[Key, Found] = {}
        last: dict[Key, Found] = {}
        partitions = {partition for partition, _ in keys}
        ends = {partition: end for partition, end in ends.items() if partition in partitions}
        for key, found in self._found(starts, ends):
            current = found.version[0] <= bound and order.admits(key[0], found.version[0])
            if key in keys:
                last[key] = found
                if current and (key not in newest or found.version >= newest[key].version):
                    newest[key] = found
        return newest, last

    def _outgoing(self, key: Key, found: Found) -> Outgoing:
        """Return a record to append; an older one than ours is ours now, else it would count as a replaced writer's."""
        version, value = found
        if version[0] < self._epoch:
            version = (self._epoch, 0)
            value = value and under_epoch(value, self._epoch)
        headers = () if value is not None else ((HEADER, deletion_header(version)),)
        return Outgoing(self._topic, key[1], value, key[0], headers)

    def _found(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[tuple[Key, Found]]:
        """Yield the records of each partition from `starts`, or its first one, to before `ends`."""
        for read in self._read({p: start for p in ends if (start := starts.get(p, 0)) < ends[p]}, ends):
            version = read.deleted_by if read.value is None else version_of(read.value) or _NONE
            yield (read.partition, read.key or b""), Found(version, read.value)

    def _append(self, records: list[Outgoing]) -> None:
        deliver(self._producer, records, timeout=self._timeout)

    def _ends(self) -> dict[int, int]:
        partitions = partitions_of(self._consumer, self._topic, timeout=self._timeout)
        return {
            partition: watermarks(self._consumer, TopicPartition(self._topic, partition), timeout=self._timeout)[1]
            for partition in partitions
        }

    def _read(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[Read]:
        return read_from(self._consumer, self._topic, starts, ends, timeout=self._timeout)
