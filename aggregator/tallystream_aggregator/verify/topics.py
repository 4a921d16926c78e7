"""Reads topics by offset: it joins no consumer group and commits nothing.

Our own topics are read with `read_committed`, and the aggregator's input as the aggregator reads it.
"""

from __future__ import annotations

import time
from contextlib import closing
from itertools import chain
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.partition_bounds import bounds_of, partitions_of
from tallystream_aggregator.kafka.reader import read_from
from tallystream_aggregator.verify.advance import PROGRESS_EVERY
from tallystream_aggregator.verify.decode import RawRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tallystream_aggregator.verify.published import PartitionName

_GROUP = "tallystream-verify"
MAX_WAIT_S = 60.0
"""The longest wait for records, and for the end of a transaction, in seconds."""

PAUSE_S = 0.2

FIRST_READ = 64
"""How many offsets at the end of a partition are read first for the newest record of a key."""


class TopicReader:
    """Reads the partitions of a cluster. `kafka` is a librdkafka configuration with bootstrap.servers."""

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._kafka = kafka

    def bounds(self, *topics: str, committed: bool = True) -> dict[PartitionName, tuple[int, int]]:
        """Return the first offset and the end offset of each partition of the topics that exist.

        If `committed`, the end is that of the records that a reader of committed transactions sees.

        Raises:
            KafkaException: the broker did not answer in time.
        """
        found: dict[PartitionName, tuple[int, int]] = {}
        with clients.metadata_consumer({**self._kafka, **_isolation(committed=committed)}, _GROUP) as consumer:
            for name in topics:
                try:
                    numbers = partitions_of(consumer, name, timeout=clients.TIMEOUT_S)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
                    continue
                for p in numbers:
                    found[f"{name}:{p}"] = bounds_of(consumer, TopicPartition(name, p), timeout=clients.TIMEOUT_S)
        return found

    def read(self, partition: PartitionName, begin: int, end: int, *, committed: bool = True) -> Iterator[RawRecord]:
        """Yield the records of a partition from `begin` on, below `end`, which the partition must have.

        Raises:
            TallystreamError: the broker sends nothing, or records were deleted before they were read.
            KafkaException: the broker rejects the request.
        """
        topic, number = split(partition)
        options = {"queued.max.messages.kbytes": 16_384, **self._kafka}
        fixed = {"auto.offset.reset": "error", **_isolation(committed=committed)}
        with closing(clients.reading_consumer(options, _GROUP, fixed)) as consumer:
            starts = {number: begin} if begin < end else {}
            at = begin
            try:
                for one in read_from(consumer, topic, starts, {number: end}, timeout=MAX_WAIT_S):
                    at = one.offset + 1
                    yield RawRecord(one.offset, one.timestamp_ms, one.key, one.value)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 (librdkafka's name for it)
                    raise
                raise TallystreamError(
                    f"{topic}, partition {number}: the records from offset {at} on were deleted before verify read "
                    "them; run it again, and if that fails too, raise retention.ms of the topic."
                ) from error


def _isolation(*, committed: bool) -> dict[str, str]:
    return {"isolation.level": "read_committed" if committed else "read_uncommitted"}


def read_all(
    reader: TopicReader,
    ranges: Mapping[PartitionName, tuple[int, int]],
    progress: Callable[[int, int], object] = lambda _done, _all: None,
) -> Iterator[RawRecord]:
    """Yield every committed record of the offset ranges, partition by partition.

    `progress` is called after every `PROGRESS_EVERY` records with their number, and about how many there are.

    Raises:
        TallystreamError, KafkaException: as `TopicReader.read`.
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
        TallystreamError: a transaction does not end.
        KafkaException: the broker did not answer.
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
        TallystreamError, KafkaException: as `settled` and `TopicReader.read`.
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
