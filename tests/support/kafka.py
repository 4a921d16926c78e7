"""Read complete topics and offsets, and follow topics."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from support.replayed import Key, TopicRecord
from support.wait import wait_until
from tallystream_aggregator import sums

T = TypeVar("T")
Seen = dict[str, list[TopicRecord]]

READ_S = 60.0
"""How long a reader waits for a record that exists."""

NOT_READY = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError._TRANSPORT,
    KafkaError._DESTROY_BROKER,
    KafkaError._TIMED_OUT,
}
"""The errors of a broker that starts, or that is reached by a connection to where another one was."""


class Servers(Protocol):
    """A broker or a cluster."""

    @property
    def bootstrap_servers(self) -> str:
        """The addresses for clients."""


def read_topic(bootstrap_servers: str, topic: str) -> list[TopicRecord]:
    """Return every record of a topic, up to its current ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "tests-read",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",  # the first ones may have been deleted
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=READ_S).topics[topic].partitions
        ends = {n: _end_offset(consumer, TopicPartition(topic, n)) for n in partitions}
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        open_partitions = set(partitions)
        records: list[TopicRecord] = []
        while open_partitions:
            message = consumer.poll(READ_S)
            if message is None:
                raise TimeoutError(f"{topic}: no record was read for {READ_S:g} s")
            error = message.error()
            if error is None:
                partition, offset = message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                if partition in open_partitions:
                    records.append(
                        TopicRecord(message.key(), message.value(), message.timestamp()[1], partition, offset)
                    )
                if offset + 1 >= ends[partition]:  # while records are appended, the event below may never come
                    open_partitions.discard(partition)
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(message.partition())
            else:
                raise KafkaException(error)
        return records
    finally:
        consumer.close()


@contextmanager
def following(bootstrap_servers: str, topics: Iterable[str]) -> Iterator[tuple[Seen, dict[str, list[float]]]]:
    """Read topics with `read_committed` all the time. The end of the block waits for theirs.

    Yields the records by topic, and the time when each was seen.
    """
    at = {(topic, partition): 0 for topic in topics for partition in end_offsets(bootstrap_servers, topic)}
    found: Seen = {topic: [] for topic, _ in at}
    seen_at: dict[str, list[float]] = {topic: [] for topic, _ in at}
    options = {"group.id": "tests-follow", "enable.auto.commit": False, "auto.offset.reset": "error", "log_level": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "enable.partition.eof": True, **options})
    consumer.assign([TopicPartition(*place, 0) for place in at])
    stopped = threading.Event()

    def follow() -> None:
        while not stopped.is_set():
            for message in consumer.consume(1000, 0.1):
                place, offset = (message.topic() or "", message.partition() or 0), message.offset() or 0
                error = message.error()
                if error is None:
                    record = TopicRecord(message.key(), message.value(), message.timestamp()[1], place[1], offset)
                    found[place[0]].append(record)
                    seen_at[place[0]].append(time.time())
                elif error.code() == KafkaError._PARTITION_EOF:
                    at[place] = offset
                else:  # an outage, which ends
                    assert error.code() != KafkaError._AUTO_OFFSET_RESET, error

    def is_at_end() -> bool:
        ends = {(topic, p): end for topic in found for p, end in end_offsets(bootstrap_servers, topic).items()}
        return reader.done() or at == ends

    try:
        with ThreadPoolExecutor(1) as pool:
            reader = pool.submit(follow)
            try:
                yield found, seen_at
                wait_until(is_at_end, 120, "the followed topics are read")
            finally:
                stopped.set()
            reader.result()
    finally:
        consumer.close()


def latest_sums(bootstrap_servers: str, topic: str) -> dict[Key, sums.Sum]:
    """Return the newest sum of every key of `metrics-agg`."""
    newest: dict[Key, sums.Sum] = {}
    for record in read_topic(bootstrap_servers, topic):
        assert record.value is not None
        row = sums.decode(record.value)
        newest[row.app, row.name, row.type, tuple(sorted(row.tags.items()))] = row
    return newest


def committed(bootstrap_servers: str, group: str, topic: str, partition: int = 0) -> int:
    """Return the group's committed offset, -1001 if it has none. Wait while a broker that has started loads groups."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "enable.auto.commit": False})
    wanted = [TopicPartition(topic, partition)]
    try:
        return _answer(lambda: consumer.committed(wanted, timeout=30)[0].offset, f"the group {group} has a coordinator")
    finally:
        consumer.close()


def end_offsets(bootstrap_servers: str, topic: str) -> dict[int, int]:
    """Return the end of each partition: the offset of the record that is appended next."""
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "tests-ends", "log_level": 0})
    try:
        known = _answer(lambda: consumer.list_topics(topic, timeout=30).topics[topic], f"a broker knows {topic}")
        return {number: _end_offset(consumer, TopicPartition(topic, number)) for number in known.partitions}
    finally:
        consumer.close()


def _end_offset(consumer: Consumer, partition: TopicPartition) -> int:
    what = f"{partition.topic}, partition {partition.partition}, has a leader"
    return _answer(lambda: consumer.get_watermark_offsets(partition, timeout=30)[1], what)


def _answer(ask: Callable[[], T], what: str) -> T:
    """Return what a broker answers, as soon as one does."""
    found: list[T] = []

    def answered() -> bool:
        try:
            found.append(ask())
        except KafkaException as error:
            if error.args[0].code() not in NOT_READY:
                raise
        return bool(found)

    if not answered():
        wait_until(answered, 60, what)
    return found[0]
