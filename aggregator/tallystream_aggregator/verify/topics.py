"""Reads topics by offset: it joins no consumer group and commits nothing.

Our own topics are read with `read_committed`, and the aggregator's input as the aggregator reads it.
"""

from __future__ import annotations

import time
from itertools import chain
from typing import TYPE_CHECKING

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka.topic_selection import Selection
from tallystream_aggregator.stream.broker import Bounds, BrokerError, LostRecordsError, Place
from tallystream_aggregator.stream.kafka.broker import KafkaBroker
from tallystream_aggregator.stream.reading import read_range
from tallystream_aggregator.verify.advance import PROGRESS_EVERY
from tallystream_aggregator.verify.decode import RawRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tallystream_aggregator.verify.published import PartitionName

_GROUP = "tallystream-verify"
MAX_WAIT_S = 60.0
"""The longest wait for the end of a transaction, in seconds."""

PAUSE_S = 0.2

FIRST_READ = 64
"""How many offsets at the end of a partition are read first for the newest record of a key."""


class TopicReader:
    """Reads the partitions of a cluster. `kafka` is a librdkafka configuration with bootstrap.servers."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._broker = KafkaBroker(kafka, Selection("metrics"), _GROUP)

    def bounds(self, *topics: str, committed: bool = True) -> dict[PartitionName, tuple[int, int]]:
        """Return the first offset and the end offset of each partition of the topics that exist.

        If `committed`, the end is that of the records that a reader of committed transactions sees.

        Raises:
            BrokerError: the broker did not answer in time.
        """
        places = [Place(name, number) for name in topics for number in self._broker.partitions_of(name)]
        found = self._broker.bounds(places)
        return {str(place): (one.first, one.stable if committed else one.end) for place, one in found.items()}

    def read(self, partition: PartitionName, begin: int, end: int, *, committed: bool = True) -> Iterator[RawRecord]:
        """Yield the records of a partition from `begin` on, below `end`, which the partition must have.

        Raises:
            TallystreamError: records were deleted before they were read.
            BrokerError: the broker sends nothing.
        """
        bounds = Bounds(begin, end, end)
        try:
            for record in read_range(self._broker, Place(*split(partition)), bounds, committed=committed):
                yield RawRecord(*record)
        except BrokerError as error:
            if isinstance(error.__cause__, LostRecordsError):
                why = "Run verify again. If that fails too, raise retention.ms of the topic."
                raise TallystreamError(f"{error} {why}") from error
            raise


def read_all(
    reader: TopicReader,
    ranges: Mapping[PartitionName, tuple[int, int]],
    progress: Callable[[int, int], object] = lambda _done, _all: None,
) -> Iterator[RawRecord]:
    """Yield every committed record of the offset ranges, partition by partition.

    `progress` is called after every `PROGRESS_EVERY` records with their number, and about how many there are.

    Raises:
        BrokerError: as `TopicReader.read`.
    """
    total = sum(end - begin for begin, end in ranges.values())
    records = chain.from_iterable(reader.read(partition, begin, end) for partition, (begin, end) in ranges.items())
    for number, record in enumerate(records, 1):
        yield record
        if number % PROGRESS_EVERY == 0:
            progress(number, total)


def settled(reader: TopicReader, topic: str) -> dict[PartitionName, tuple[int, int]]:
    """Return the bounds of the topic's partitions, when all transactions that are open there now have ended.

    Until then a reader does not see what was committed after the first record of an open transaction.

    Raises:
        TallystreamError: a transaction does not end, or the broker did not answer.
    """
    wanted = reader.bounds(topic, committed=False)
    deadline = time.monotonic() + MAX_WAIT_S
    while True:
        found = reader.bounds(topic)
        open_ = [partition for partition, (_, end) in found.items() if end < wanted[partition][1]]
        if not open_:
            return found
        if time.monotonic() > deadline:
            raise TallystreamError(f"{open_[0]}: a transaction has been open for {MAX_WAIT_S:g} s.")
        time.sleep(PAUSE_S)


def newest(reader: TopicReader, partition: PartitionName, key: bytes) -> RawRecord | None:
    """Return the newest record with this key when all transactions that are open now have ended, None if there is none.

    Raises:
        TallystreamError: as `settled` and `TopicReader.read`.
    """
    low, end = settled(reader, split(partition)[0]).get(partition, (0, 0))
    size = FIRST_READ
    while end > low:
        begin = max(low, end - size)
        found = [one for one in reader.read(partition, begin, end) if one.key == key and one.value is not None]
        if found:
            return found[-1]
        end, size = begin, 2 * size
    return None


def split(partition: PartitionName) -> tuple[str, int]:
    """Return the topic and the number of a partition."""
    topic, _, number = partition.rpartition(":")
    return topic, int(number)
