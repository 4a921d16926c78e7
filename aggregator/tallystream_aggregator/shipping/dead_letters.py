"""Sends points that a store rejects permanently to `metrics-dead`. docs/topics.md shows the record."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from tallystream_aggregator.kafka.producer import ProducerRecord, RecordProducer
from tallystream_aggregator.sinks.base import SinkUnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tallystream_aggregator.sinks.base import Point

MAX_QUOTED = 65_536


def letter(point: Point, reason: str, store: str) -> tuple[bytes, bytes]:
    """Return the key and value of a point's dead letter. NaN and infinity are written as Python writes them.

    The dead letter has no offset: the table accepted the record.
    """
    content = {"measurement": point.measurement, "tags": dict(point.tags), "fields": dict(point.fields)}
    quoted = json.dumps(content, ensure_ascii=False)[:MAX_QUOTED]
    body = {"v": 1, "reason": reason[:1000], "ts": point.ts_ms, "store": store, "point": quoted}
    return point.measurement.encode()[:1024], json.dumps(body, ensure_ascii=False).encode()


class RejectedPoints:
    """Sends the dead letters of one store. `kafka` is a librdkafka configuration with bootstrap.servers.

    Delivery: at least once. A batch ends only after its dead letters are acknowledged.
    """

    def __init__(self, topic: str, kafka: Mapping[str, str], store: str, *, timeout: float = 10.0) -> None:
        self._topic, self._store, self._timeout = topic, store, timeout
        self._kafka = kafka
        self._producer: RecordProducer | None = None

    def send(self, refused: Iterable[tuple[Point, str]]) -> None:
        """Send points with the reason for each, and return when the broker has acknowledged all of them.

        Raises:
            SinkUnavailableError: the broker did not acknowledge one in time. All must be sent again later.
        """
        letters = [ProducerRecord(self._topic, *letter(point, reason, self._store)) for point, reason in refused]
        if not letters:
            return
        if self._producer is None:
            self._producer = RecordProducer(self._kafka, timeout=self._timeout)
        try:
            self._producer.deliver(letters)
        except KafkaException as error:
            raise SinkUnavailableError(f"{self._topic}: {error.args[0]}.") from error
