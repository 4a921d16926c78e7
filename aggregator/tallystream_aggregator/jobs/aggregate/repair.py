"""Publishes keys again whose last record on a compacted topic is not from the newest batch of the key.

Readers take the highest (epoch, batch) of a key, but compaction keeps the last record. That record may be from a
replaced writer, or from an epoch that no writer has taken. It may also be from an earlier batch of the active writer:
when Spark loses an executor, it runs the task again elsewhere, and the lost executor may still write. So the active
writer reads `metrics-table` and `metrics-agg`, and the table publishes the keys of such records again from its state. A
file beside the checkpoint names the keys, and the record of each shard says which request it has carried out.

The ledger has the offsets before which nothing is left to repair (`checked`). A new writer starts there.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tallystream.decoding import json_decoder
from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.ledger import QUERY, highest_epoch
from tallystream_aggregator.kafka.partition_bounds import bounds_of, partitions_of
from tallystream_aggregator.kafka.reader import read_from
from tallystream_aggregator.repair_request import Request, write_request
from tallystream_aggregator.versions import Version, version_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tallystream_aggregator.kafka.ledger import Epochs, LedgerRow
    from tallystream_aggregator.kafka.reader import Read
    from tallystream_aggregator.kafka.topic_selection import Offsets

log = logging.getLogger(__name__)

_NONE: Version = (-1, 0)
"""The version of a record that names no writer."""

TIMEOUT_S = 10.0
"""The time for one request to the brokers, and for the next record."""

_SHARD = b'["shard",'

Key = tuple[int, bytes]
"""(partition, key)"""


class _Repaired(msgspec.Struct):
    repaired: int = 0


_decode_repaired = json_decoder(_Repaired)


class Checked(NamedTuple):
    """The offsets before which nothing is left to repair: topic → partition → offset. No epoch is above `epoch`."""

    offsets: Mapping[str, Mapping[str, int]]
    epoch: int


def last_checked(rows: Sequence[LedgerRow]) -> Checked:
    """Return what the rows of the ledger say. There are no offsets if no row has them.

    `epoch` is that of the previous writer. Records that a lower epoch appended since need a repair.
    """
    found = [row.checked for row in rows if row.query == QUERY and row.checked]
    return Checked(found[-1], highest_epoch(rows) or 0) if found else Checked({}, 0)


class TopicWatch:
    """Reads the partitions of a topic from the offsets of `checked`, or from the beginning. For one thread.

    A record is stale if its (epoch, batch) is lower than that of an earlier record of its partition, or if it was
    appended after our start with an epoch lower than `epoch`, our own. A batch that runs again has the same number.
    `last_begun` returns the number of our newest batch: no aggregator wrote a record of our epoch with a higher one.

    `repaired` maps shard → the number of the last request that it has carried out. Only `metrics-table` has it.
    """

    def __init__(
        self,
        topic: str,
        kafka: Mapping[str, str],
        epochs: Epochs,
        *,
        epoch: int,
        last_begun: Callable[[], int],
        checked: Checked = Checked({}, 0),  # noqa: B008 (a tuple that nobody changes)
    ) -> None:
        self._topic = topic
        self._consumer = clients.reading_consumer(kafka)
        self._begin(epochs, epoch, last_begun, checked)

    def _begin(self, epochs: Epochs, epoch: int, last_begun: Callable[[], int], checked: Checked) -> None:
        self._epochs, self._epoch, self._before = epochs, epoch, checked.epoch
        self._last_begun = last_begun
        self._at = {int(partition): offset for partition, offset in checked.offsets.get(self._topic, {}).items()}
        self._highest: dict[int, Version] = {}
        self._opened = self._ends()
        self.repaired: dict[int, int] = {}

    @property
    def at(self) -> dict[str, int]:
        """Partition → the offset before which all has been read."""
        return {str(partition): offset for partition, offset in self._at.items()}

    def poll(self) -> set[Key]:
        """Read the new records, and return the keys of records that are stale or that no aggregator wrote.

        Raises:
            KafkaException: the broker did not answer in time. The next call reads the same records again.
            OSError: `last_begun` can't read the checkpoint. The next call reads the same records again.
        """
        highest = dict(self._highest)
        try:
            ends = self._ends()
            found = self._check(highest, ends)
        except TallystreamError as error:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, str(error))) from error  # noqa: SLF001 (librdkafka's name for it)
        self._at, self._highest = ends, highest
        return found

    def close(self) -> None:
        """Release the connections."""
        self._consumer.close()

    def _check(self, highest: dict[int, Version], ends: Mapping[int, int]) -> set[Key]:
        found: set[Key] = set()
        above: dict[Key, Version] = {}
        begin = (self._before, 0)
        known = max(self._epoch, self._epochs.bound(()))
        last_begun = self._last_begun()  # read after the ends, so no record before them is of a later batch
        for read in self._read({p: start for p in ends if (start := self._at.get(p, 0)) < ends[p]}, ends):
            key = (read.partition, read.key or b"")
            version = read.deleted_by if read.value is None else version_of(read.value) or _NONE
            if version[0] > known:
                above[key] = max(version, above.get(key, version))
                continue
            lowest = self._epoch if read.offset >= self._opened.get(read.partition, 0) else 0
            is_stale = version < max(highest.get(read.partition, begin), (lowest, 0))
            if is_stale or (version[0] == self._epoch and version[1] > last_begun):
                found.add(key)
                continue
            highest[read.partition] = version
            if version[0] == self._epoch and read.value is not None and key[1].startswith(_SHARD):
                with contextlib.suppress(msgspec.DecodeError):
                    self.repaired[read.partition] = _decode_repaired(read.value).repaired
        # Read after the records: an epoch above this bound is one that no writer has taken.
        bound = max(known, self._epochs.bound(epoch for epoch, _ in above.values()))
        for key, version in above.items():
            if version[0] > bound:
                found.add(key)
            else:
                highest[key[0]] = max(version, highest.get(key[0], begin))
        return found

    def _ends(self) -> dict[int, int]:
        partitions = partitions_of(self._consumer, self._topic, timeout=TIMEOUT_S)
        return {
            partition: bounds_of(self._consumer, TopicPartition(self._topic, partition), timeout=TIMEOUT_S)[1]
            for partition in partitions
        }

    def _read(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> Iterator[Read]:
        return read_from(self._consumer, self._topic, starts, ends, timeout=TIMEOUT_S)


class Repair:
    """Requests that the shards publish the keys that `table` and `agg` find, through the file `path`.

    `wake` makes every shard run in a batch. A request stays until all of the `shards` have carried it out.
    """

    def __init__(
        self, table: TopicWatch, agg: TopicWatch, path: Path, *, epoch: int, shards: int, wake: Callable[[], None]
    ) -> None:
        self._table, self._agg, self._path = table, agg, path
        self._shards, self._wake = shards, wake
        self._epoch, self._number = epoch, 0
        self._rows: set[Key] = set()
        self._sums: set[Key] = set()
        self._is_pending = False
        self._checked: tuple[dict[str, int], dict[str, int]] = ({}, {})
        path.unlink(missing_ok=True)

    def checked(self, table: str, agg: str) -> Offsets:
        """Return the offsets before which nothing is left to repair; `table` and `agg` are the names of the topics."""
        return {topic: at for topic, at in zip((table, agg), self._checked, strict=True) if at}

    def poll(self) -> None:
        """Read the new records, and request a repair of the keys that need one.

        Raises:
            KafkaException: the broker did not answer in time. The next call continues.
            OSError: the file can't be written.
        """
        for watch, keys in ((self._table, self._rows), (self._agg, self._sums)):
            found = watch.poll()
            keys.update(found)
            self._is_pending |= bool(found)  # Requested keys, too: they may have been overwritten again.
        if self._is_pending:
            self._is_pending, self._number = False, self._number + 1
            log.warning(
                "a replaced writer, a lost executor, or a writer that has taken no epoch has written %d rows and %d "
                "sums; they are published again",
                len(self._rows),
                len(self._sums),
            )
        elif self._outstanding and all(
            self._table.repaired.get(shard) == self._number for shard in range(self._shards)
        ):
            self._rows.clear()
            self._sums.clear()
            self._path.unlink(missing_ok=True)
        if not self._outstanding:
            self._checked = (self._table.at, self._agg.at)
            return
        self._write()  # Each time: a writer that is being replaced may just have written its own request.
        self._wake()

    def close(self) -> None:
        """Release the connections."""
        self._table.close()
        self._agg.close()

    @property
    def _outstanding(self) -> bool:
        return bool(self._rows or self._sums)

    def _write(self) -> None:
        table: dict[int, list[bytes]] = {}
        for partition, key in sorted(self._rows):
            table.setdefault(partition, []).append(key)
        sums = sorted(key for _, key in self._sums)
        write_request(self._path, Request(self._epoch, self._number, table, sums))
