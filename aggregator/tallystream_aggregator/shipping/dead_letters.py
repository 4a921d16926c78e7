"""The dead letters of points that a store rejects."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from tallystream_aggregator.kafka.producer import ProducerRecord, RecordProducer
from tallystream_aggregator.sinks.base import SinkUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream_aggregator.sinks.base import Point, Refused

MAX_POINT_CHARS = 65_536
"""The most characters of a point in its dead letter."""


class LettersUnavailableError(SinkUnavailableError):
    """Kafka did not acknowledge a dead letter on `topic` in time."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f"{topic}: {reason}.")
        self.topic = topic


class DeadLetters:
    """Sends the dead letters of one store. `kafka` is a librdkafka configuration with bootstrap.servers.

    Delivery: at least once. Offsets are committed only after the dead letters of the points are acknowledged.
    """

    def __init__(self, topic: str, kafka: Mapping[str, str], store: str) -> None:
        self._topic, self._kafka, self._store = topic, kafka, store
        self._producer: RecordProducer | None = None

    def send(self, rejected: Iterable[Refused]) -> None:
        """Send those that have a point, and return when the broker has acknowledged all of them.

        Raises:
            LettersUnavailableError: the broker did not acknowledge one in time. All must be sent again later.
        """
        letters = [
            ProducerRecord(self._topic, *dead_letter(point, reason, self._store))
            for point, reason in rejected
            if point is not None
        ]
        if not letters:
            return
        if self._producer is None:
            self._producer = RecordProducer(self._kafka)
        try:
            self._producer.deliver(letters)
        except KafkaException as error:
            raise LettersUnavailableError(self._topic, error.args[0].str().rstrip(".")) from error


def dead_letter(point: Point, reason: str, store: str) -> tuple[bytes, bytes]:
    """Return the key and value of a point's dead letter (docs/record.md). NaN and infinity are written as by Python.

    The dead letter has no offset: the table accepted the record.
    """
    content = {"measurement": point.measurement, "tags": dict(point.tags), "fields": dict(point.fields)}
    text = json.dumps(content, ensure_ascii=False)[:MAX_POINT_CHARS]
    body = {"v": 1, "reason": reason[:1000], "ts": point.ts_ms, "store": store, "point": text}
    return point.measurement.encode()[:1024], json.dumps(body, ensure_ascii=False).encode()
