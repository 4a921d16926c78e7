"""Did those records arrive? Reads them back from the topic, when a life ends in doubt: rare, and never in a hurry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tallystream.reporter._life import CannotTellError, Doubt
from tallystream.reporter._producing import librdkafka_log
from tallystream.reporter.errors import TallystreamError
from tallystream.reporter.lives import HOUR_MS, RETIRE_MS
from tallystream.reporter.record import Snapshot, decode
from tallystream.reporter.ulid import ulid_ms

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_PRODUCERS_OWN = ("acks", "enable.idempotence", "message.timeout.ms", "delivery.report.only.error", "linger.ms")


class Appended(NamedTuple):
    """What is needed of a record in the topic: key, value, and the broker's append time in epoch ms."""

    key: bytes | None
    value: bytes | None
    append_ms: int


def newest_taken(records: Iterable[Appended], instance: str, doubt: Doubt) -> Snapshot | None:
    """Return the newest of the doubtful snapshots that is among `records` and came in time for the table to take it."""
    newest: Snapshot | None = None
    needle = doubt.life.encode()
    for record in records:
        if record.key != instance.encode() or record.value is None or needle not in record.value:
            continue
        try:
            snapshot = decode(record.value)
        except msgspec.DecodeError:
            continue  # another program's record under our key
        if (snapshot.life, snapshot.part) != (doubt.life, doubt.part) or snapshot.seq <= doubt.acknowledged_seq:
            continue
        reference_ms = ulid_ms(snapshot.life) if snapshot.prev is None else snapshot.prev
        ahead_ms = ulid_ms(snapshot.life) - record.append_ms
        in_time = record.append_ms - reference_ms < RETIRE_MS and ahead_ms <= RETIRE_MS
        if in_time and (newest is None or snapshot.seq > newest.seq):
            newest = snapshot
    return newest


def read_back(
    options: Mapping[str, Any], topic: str, instance: str, doubt: Doubt, *, timeout: float = 10.0
) -> Snapshot | None:
    """Return the newest of the doubtful snapshots that the table took, None if it took none.

    Reads the topic from an hour before the first of them was handed over (for clocks that disagree) to its present end.
    `timeout` is in seconds, for each answer of the broker.

    Raises:
        CannotTellError: reading is not allowed, or that part of the topic is gone.
        TallystreamError: the broker did not answer; ask again later.
    """
    import confluent_kafka
    from confluent_kafka import KafkaError, KafkaException

    plain = {name: value for name, value in options.items() if name not in _PRODUCERS_OWN}
    habits = {"group.id": "tallystream-read-back", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer({**plain, **habits}, logger=librdkafka_log)
    try:
        return newest_taken(_records(consumer, topic, doubt.not_before_ms - HOUR_MS, timeout), instance, doubt)
    except KafkaException as error:
        reason = error.args[0]
        if reason.code() in (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED):
            raise CannotTellError(f"reading {topic!r} is not allowed") from error
        raise TallystreamError(f"the topic {topic!r} can't be read now: {reason.str()}") from error
    finally:
        consumer.close()


def _records(consumer: Any, topic: str, since_ms: int, timeout: float) -> Iterator[Appended]:
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    metadata = consumer.list_topics(topic, timeout=timeout).topics[topic]
    if metadata.error is not None:
        raise KafkaException(metadata.error)
    wanted = [TopicPartition(topic, number, max(since_ms, 0)) for number in metadata.partitions]
    starts = consumer.offsets_for_times(wanted, timeout=timeout)
    ends: dict[int, int] = {}
    for start in starts:
        low, ends[start.partition] = consumer.get_watermark_offsets(
            TopicPartition(topic, start.partition), timeout=timeout
        )
        if 0 < low == start.offset:
            raise CannotTellError(f"the topic {topic!r} does not reach back to the records in question")
    consumer.assign(starts)
    while ends:
        message = consumer.poll(timeout)
        if message is None:
            raise TallystreamError(f"the topic {topic!r} was not read to its end in time")
        error = message.error()
        if error is None:
            yield Appended(message.key(), message.value(), message.timestamp()[1])
            # Where records keep coming, the event below may never do: it tells of a fetch that found none.
            if message.offset() + 1 >= ends.get(message.partition(), 0):
                ends.pop(message.partition(), None)
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - confluent-kafka's public name for it
            ends.pop(message.partition(), None)
        else:
            raise KafkaException(error)
