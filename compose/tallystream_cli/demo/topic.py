"""What the demonstration asks of Kafka: a topic read whole, its ends, a group's offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from tallystream.errors import TallystreamError
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.partition_bounds import watermarks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Consumer

TIMEOUT_S = 30.0


class ReadError(TallystreamError):
    """A topic could not be read to its end."""


def reader(bootstrap_servers: str, group: str = "demo-reader") -> Consumer:
    """Return a consumer that belongs to no group and commits nothing; `group` is for asking for its offsets."""
    return clients.consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )


def read(bootstrap_servers: str, topic: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of every record of partition 0, to the end as it is now.

    Raises:
        ReadError: nothing comes any more, and the end is not reached.
        KafkaException: the broker refused.
    """
    consumer = reader(bootstrap_servers)
    try:
        end = ends(consumer, topic)[0]
        if not end:
            return
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            messages = consumer.consume(1000, timeout=1.0) or consumer.consume(1, timeout=TIMEOUT_S)
            if not messages:
                raise ReadError(f"topic {topic}: nothing was read for {TIMEOUT_S:g} s.")
            for message in messages:
                error = message.error()
                if error is None:
                    yield message.key() or b"", message.value() or b""
                    if (message.offset() or 0) + 1 >= end:  # the event below never comes where records keep coming
                        return
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (the constant has no public name)
                    return
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


def ends(consumer: Consumer, topic: str, partitions: int = 1) -> dict[int, int]:
    """Return the offset after the last record, by partition."""
    return {
        number: watermarks(consumer, TopicPartition(topic, number), timeout=TIMEOUT_S)[1]
        for number in range(partitions)
    }


def committed(consumer: Consumer, topic: str, partitions: int = 1) -> dict[int, int]:
    """Return the offsets that the consumer's group has committed, by partition; 0 where there is none."""
    asked = [TopicPartition(topic, number) for number in range(partitions)]
    return {found.partition: max(found.offset, 0) for found in consumer.committed(asked, timeout=TIMEOUT_S)}
