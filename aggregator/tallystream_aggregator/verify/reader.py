"""Reads records of topics by offset with `assign`: it joins no consumer group and commits no offsets.

Our own topics are read with `read_committed`, and the aggregator's input as the aggregator reads it.

Memory is bounded by the client's buffers.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.partition_bounds import at_times, bounds_of
from tallystream_aggregator.verify.decode import RawRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tallystream_aggregator.verify.published import Ends, PartitionName

_GROUP = "tallystream-verify"
FETCH = 1000
MAX_WAIT_S = 60.0
"""The longest wait for records, and for the end of a transaction, in seconds."""

PAUSE_S = 0.2


class Reader:
    """Reads one partition of a topic forward from offset `begin`. The caller closes it.

    Records of transactions that are open or aborted are left out if `committed`.
    """

    def __init__(self, kafka: Mapping[str, str], partition: PartitionName, begin: int, *, committed: bool) -> None:
        topic, number = split(partition)
        self._name = f"{topic}, partition {number}"
        self._consumer = clients.reading_consumer(
            {"queued.max.messages.kbytes": 16_384, **kafka, **_isolation(committed=committed)},
            _GROUP,
            {"enable.auto.offset.store": False, "auto.offset.reset": "error"},
        )
        self._waiting: deque[RawRecord] = deque()
        self._next = begin
        self._partition = TopicPartition(topic, number, begin)
        self._consumer.assign([self._partition])

    def until(self, end: int) -> Iterator[RawRecord]:
        """Yield the next records with offsets below `end`, or up to the end of the partition.

        Raises:
            TallystreamError: the broker sends nothing, or has deleted records that were not read yet.
            KafkaException: the leader does not answer.
        """
        while self._next < end:
            if not self._waiting and not self._fetch(end):
                return
            while self._waiting and self._waiting[0].offset < end:
                record = self._waiting.popleft()
                self._next = record.offset + 1
                yield record
            if self._waiting:
                return

    def _fetch(self, end: int) -> bool:
        """Wait for records, and return whether there are any: False at `end`, or at the partition's end."""
        for _ in range(int(MAX_WAIT_S)):
            first = self._consumer.poll(1.0)
            # With a timeout of 0, `consume` returns what is there. Otherwise it would wait for FETCH records.
            messages = [] if first is None else [first, *self._consumer.consume(FETCH, timeout=0)]
            ended = False
            for message in messages:
                error = message.error()
                if error is None:
                    offset = message.offset()
                    self._waiting.append(RawRecord(offset or 0, message.timestamp()[1], message.key(), message.value()))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (librdkafka's name for it)
                    ended = self._is_end(message.offset() or 0, end)
                else:
                    raise TallystreamError(f"{self._name}: offset {self._next} can't be read: {error.str()}.")
            if self._waiting or ended:
                return bool(self._waiting)
        raise TallystreamError(f"{self._name}: the broker has sent nothing for {MAX_WAIT_S:g} s.")

    def _is_end(self, at: int, end: int) -> bool:
        """Return whether nothing is left after `at`, where the broker that was asked has no more records.

        This may be a follower, or a new leader, that lacks the last ones for a while. So the leader is asked.
        """
        return at >= end or at >= bounds_of(self._consumer, self._partition, timeout=clients.TIMEOUT_S)[1]

    def close(self) -> None:
        """Close the connection. It is safe to call this again."""
        self._consumer.close()


def _isolation(*, committed: bool) -> dict[str, str]:
    return {"isolation.level": "read_committed" if committed else "read_uncommitted"}


def bounds(kafka: Mapping[str, str], *topics: str, committed: bool = True) -> dict[PartitionName, tuple[int, int]]:
    """Return the first offset and the end offset of each partition of the topics that exist.

    If `committed`, the end is that of the records that a reader of committed transactions sees.

    Raises:
        KafkaException: the broker did not answer in time.
    """
    found: dict[PartitionName, tuple[int, int]] = {}
    with clients.metadata_consumer({**kafka, **_isolation(committed=committed)}, _GROUP) as consumer:
        for name in topics:
            topic = consumer.list_topics(name, timeout=clients.TIMEOUT_S).topics[name]
            if topic.error is not None:
                if topic.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise KafkaException(topic.error)
            for p in sorted(topic.partitions):
                found[f"{name}:{p}"] = bounds_of(consumer, TopicPartition(name, p), timeout=clients.TIMEOUT_S)
    return found


def settled(kafka: Mapping[str, str], *topics: str) -> dict[PartitionName, tuple[int, int]]:
    """Return the bounds of the topics' partitions, when all transactions that are open there now have ended.

    Until then a reader does not see what was committed after the first record of an open transaction.

    Raises:
        TallystreamError: a transaction does not end.
        KafkaException: the broker did not answer.
    """
    wanted = bounds(kafka, *topics, committed=False)
    deadline = time.monotonic() + MAX_WAIT_S
    while True:
        found = bounds(kafka, *topics)
        open_ = [partition for partition, (_, end) in found.items() if end < wanted[partition][1]]
        if not open_:
            return found
        if time.monotonic() > deadline:
            raise TallystreamError(f"{open_[0]}: a transaction has been open for {MAX_WAIT_S:g} s.")
        time.sleep(PAUSE_S)


def at_time(kafka: Mapping[str, str], topics: Iterable[str], ts_ms: int) -> Ends:
    """Return, for each partition, the offset of the first record appended at or after `ts_ms`, or the end offset.

    Raises:
        KafkaException: the broker did not answer in time.
    """
    now = bounds(kafka, *topics, committed=False)
    with clients.metadata_consumer(kafka, _GROUP) as consumer:
        found = at_times(consumer, [TopicPartition(*split(at), ts_ms) for at in now], timeout=clients.TIMEOUT_S)
    offsets = {f"{tp.topic}:{tp.partition}": tp.offset for tp in found}
    return {at: offset if offset >= 0 else now[at][1] for at, offset in offsets.items()}


def read_all(kafka: Mapping[str, str], ranges: Mapping[PartitionName, tuple[int, int]]) -> Iterator[RawRecord]:
    """Yield every committed record of the offset ranges, partition by partition.

    Raises:
        TallystreamError: as `Reader.until`.
    """
    for partition, (begin, end) in ranges.items():
        with closing(Reader(kafka, partition, begin, committed=True)) as reader:
            yield from reader.until(end)


def newest(kafka: Mapping[str, str], partition: PartitionName, key: bytes) -> RawRecord | None:
    """Return the newest committed record with this key, None if there is none.

    Raises:
        TallystreamError: as `Reader.until`.
    """
    low, end = bounds(kafka, split(partition)[0]).get(partition, (0, 0))
    size = FETCH
    while end > low:
        begin = max(low, end - size)
        found = [one for one in read_all(kafka, {partition: (begin, end)}) if one.key == key and one.value is not None]
        if found:
            return found[-1]
        end, size = begin, 2 * size
    return None


def split(partition: PartitionName) -> tuple[str, int]:
    """Return the topic and the number of a partition."""
    topic, _, number = partition.rpartition(":")
    return topic, int(number)
