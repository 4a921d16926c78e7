"""Publishes records, and waits until the broker has acknowledged all of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from tallystream_aggregator.kafka import clients

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka import Producer

ANY = -1
"""The key decides about the partition."""


class ProducerRecord(NamedTuple):
    """A record to publish. A null value deletes its key."""

    topic: str
    key: bytes
    value: bytes | None
    partition: int = ANY
    headers: tuple[tuple[str, bytes], ...] = ()


def producer_for(kafka: Mapping[str, str], *, timeout: float, idempotent: bool = True) -> Producer:
    """Return a producer for `deliver`, which stops retrying a record after `timeout` seconds.

    If `idempotent` is False, a record may be appended twice.

    Raises:
        ConfigError: librdkafka rejects an option of `kafka`.
    """
    options = {"enable.idempotence": True} if idempotent else {}
    return clients.producer({**kafka, **options, "delivery.timeout.ms": int(timeout * 1000)})


def deliver(producer: Producer, records: Iterable[ProducerRecord], *, timeout: float) -> None:
    """Publish `records`, and return when the broker has acknowledged all of them.

    `timeout` is in seconds, the same as that of `producer_for`.

    Raises:
        KafkaException: the broker rejected a record, or has not acknowledged it in time. Any of the records may have
            been appended.
    """
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            errors.append(error)

    deadline = time.monotonic() + timeout
    number = 0
    for record in records:
        number += 1
        while True:
            try:
                producer.produce(
                    record.topic,
                    key=record.key,
                    value=record.value,
                    partition=record.partition,
                    headers=list(record.headers),
                    on_delivery=delivered,
                )
                break
            except BufferError as error:  # the queue is full
                if time.monotonic() > deadline:
                    raise KafkaException(KafkaError(KafkaError._QUEUE_FULL)) from error  # noqa: SLF001
                producer.poll(0.1)
    left = producer.flush(timeout + 1)  # librdkafka checks once a second for records that have timed out
    if errors:
        raise KafkaException(errors[0])
    if left:
        message = f"the broker has not acknowledged {left} of {number} records after {timeout:g} s"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, message))  # noqa: SLF001 (librdkafka's name for it)
