"""Publishes records, and waits until the broker has acknowledged all of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from tallystream_aggregator.kafka import clients

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TIMEOUT_S = 10.0
"""The longest time for a record, in seconds."""

ANY = -1
"""The key decides about the partition."""


class ProducerRecord(NamedTuple):
    """A record to publish. A null value deletes its key."""

    topic: str
    key: bytes
    value: bytes | None
    partition: int = ANY


class RecordProducer:
    """Publishes records, each at least once if it is acknowledged. It stops retrying a record after `TIMEOUT_S`.

    It is not idempotent: such a producer waits half a second for its ID, and never sends again after a fatal error,
    such as a permission that is missing.

    Raises:
        ConfigError: librdkafka rejects an option of `kafka`.
    """

    def __init__(self, kafka: Mapping[str, str]) -> None:
        self._producer = clients.producer({**kafka, "delivery.timeout.ms": int(TIMEOUT_S * 1000)})

    def deliver(self, records: Iterable[ProducerRecord]) -> None:
        """Publish `records`, and return when the broker has acknowledged all of them.

        Raises:
            KafkaException: the broker rejected a record, or has not acknowledged it in time. Any of the records may
                have been appended.
        """
        errors: list[KafkaError | None] = []
        for topic, key, value, partition in records:
            produce = partial(
                self._producer.produce, topic, value, key, partition, on_delivery=lambda error, _: errors.append(error)
            )
            try:
                produce()
            except BufferError as full:
                if self._producer.flush(TIMEOUT_S):
                    raise KafkaException(KafkaError(KafkaError._QUEUE_FULL)) from full  # noqa: SLF001
                produce()
        left = self._producer.flush(TIMEOUT_S + 1)  # librdkafka checks for records that timed out once a second
        for error in filter(None, errors):
            raise KafkaException(error)
        if left:
            message = f"the broker has not acknowledged {left} of {left + len(errors)} records after {TIMEOUT_S:g} s"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, message))  # noqa: SLF001 (librdkafka's name for it)
