"""Wake a query that goes on from a checkpoint: Spark looks at its timers only once a batch with records has run.

Without it, lives that fell silent while no aggregator ran would count as living until somebody's next record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, Producer

if TYPE_CHECKING:
    from collections.abc import Mapping

INSTANCE = "tallystream-aggregator"
"""An instance ID that publishes nothing else: a tombstone of it takes nothing out of any sum."""


def wake(topic: str, partition: int, kafka: Mapping[str, str], *, timeout: float = 10.0) -> None:
    """Append one tombstone to a partition that is read, and return when the broker has it. `timeout` is in seconds.

    Raises:
        KafkaException: the broker did not take it in time.
    """
    producer = Producer({**kafka, "enable.idempotence": True, "delivery.timeout.ms": int(timeout * 1000)})
    failures: list[KafkaException] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failures.append(KafkaException(error))

    producer.produce(topic, partition=partition, key=INSTANCE.encode(), value=None, on_delivery=delivered)
    producer.flush(timeout + 1)
    if failures:
        raise failures[0]
