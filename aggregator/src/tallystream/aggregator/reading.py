"""Read a topic of one partition to its end, as it is now: no group, nothing committed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaException, TopicPartition

from tallystream.aggregator import clients
from tallystream.aggregator.watermarks import watermarks
from tallystream.reporter.errors import TallystreamError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Read(NamedTuple):
    """A record as it was read; a null value deletes its key."""

    key: bytes | None
    value: bytes | None
    offset: int


def read_topic(
    topic: str, kafka: Mapping[str, str], *, last: int | None = None, timeout: float = 30.0
) -> Iterator[Read]:
    """Yield the records of a topic's one partition up to its end, oldest first; of the `last` offsets alone if given.

    `kafka` is a librdkafka configuration with bootstrap.servers; `timeout` is how many seconds nothing may come.

    Raises:
        KafkaException: the broker did not answer, or has no such topic.
        TallystreamError: the topic's end was not reached in time.
    """
    consumer = clients.consumer(
        {**kafka, "group.id": "tallystream-reading", "enable.auto.commit": False, "enable.partition.eof": True}
    )
    try:
        low, high = watermarks(consumer, TopicPartition(topic, 0), timeout=timeout)
        if low >= high:
            return
        consumer.assign([TopicPartition(topic, 0, low if last is None else max(low, high - last))])
        while True:
            # Not consume(): that waits for as many as were asked for, or for the whole time.
            message = consumer.poll(timeout)
            if message is None:
                raise TallystreamError(f"topic {topic}: its end was not reached in {timeout:g} s.")
            error = message.error()
            if error is None:
                offset = message.offset() or 0
                yield Read(message.key(), message.value(), offset)
                # Where records keep coming, the event below may never do: it tells of a fetch that found none.
                if offset + 1 >= high:
                    return
            elif error.code() == error._PARTITION_EOF:  # noqa: SLF001 (librdkafka's name for it)
                return
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
