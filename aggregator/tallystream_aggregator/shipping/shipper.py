"""Writes points to a store: waits while it is unavailable, and sends points that it rejects to `metrics-dead`."""

from __future__ import annotations

import json
import logging
import random
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException

from tallystream_aggregator.kafka.producer import ProducerRecord, RecordProducer
from tallystream_aggregator.sinks.base import SinkUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tallystream.signals import SignalSafeEvent
    from tallystream_aggregator.health import Health
    from tallystream_aggregator.shipping.points import PointMapper, Shipped
    from tallystream_aggregator.sinks.base import Point, Sink

log = logging.getLogger(__name__)

STORE = "the store"
"""What the shipper waits for while points wait on Kafka, in the health response."""

MIN_PAUSE_S, MAX_PAUSE_S = 0.2, 15.0


class StoppedError(Exception):
    """A stop was requested while the store was unavailable. The batch runs again after a restart."""


def retry(write: Callable[[], None], stop: SignalSafeEvent) -> None:
    """Call `write` until it does not raise SinkUnavailableError, with growing pauses.

    A pause is at least as long as the store requests.

    Raises:
        StoppedError: `stop` was set during a pause.
    """
    attempt = 0
    while True:
        try:
            write()
        except SinkUnavailableError as error:
            attempt += 1
            requested_s = error.retry_after_s
            if attempt == 1:
                log.warning("%s Points wait on Kafka and are written when it is available again.", error)
        else:
            if attempt:
                log.info("available again after %d attempts", attempt + 1)
            return
        if stop.wait(max(requested_s, pause_s(attempt))):
            raise StoppedError


def pause_s(attempt: int) -> float:
    """Return the pause in seconds after attempt 1, 2, 3 …: doubled each time, capped, with jitter in its upper half.

    Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015 (equal jitter).
    """
    longest = min(MAX_PAUSE_S, MIN_PAUSE_S * 2.0 ** min(attempt - 1, 30))
    return random.uniform(longest / 2, longest)


class Shipper:
    """Writes batches of records to a sink. Points that the sink rejects permanently go to `rejected`.

    Delivery: at least once and in offset order. A batch returns only when the sink has all of it, so it waits while the
    sink is unavailable, and no later batch starts before.
    """

    def __init__(
        self, sink: Sink, mapper: PointMapper, rejected: RejectedPoints, *, stop: SignalSafeEvent, health: Health
    ) -> None:
        self._sink, self._mapper, self._rejected = sink, mapper, rejected
        self._stop, self._health = stop, health
        self._is_set_up = False
        health.internal_metrics.set_function(
            "tallystream.ship.store_unavailable", lambda: int(health.status.waiting_for == STORE)
        )

    def set_up(self) -> None:
        """Set the sink up if it is available, so that wrong settings are reported before Spark starts.

        Raises:
            ConfigError: the sink rejects the settings.
        """
        try:
            self._set_up_once()
        except SinkUnavailableError as error:
            self._health.status.waiting_for = STORE
            log.warning("%s Points wait on Kafka and are written when it is available.", error)

    def ship(self, records: Iterable[Shipped]) -> None:
        """Write the points of a batch.

        Raises:
            StoppedError: a stop was requested while the sink was unavailable. The batch is not finished.
            ConfigError: the sink rejects the settings.
        """
        points = self._mapper.points(records)

        def write() -> None:
            bad: list[tuple[Point, str]] = []  # of this attempt: the next attempt reports and counts them again
            counted = self._sink.refusals.number
            self._sink.refusals.listen = lambda point, reason: bad.append((point, reason))
            try:
                self._set_up_once()
                self._sink.write(points)
                self._sink.flush()
                self._rejected.send(bad)
            except SinkUnavailableError:
                self._health.status.waiting_for = STORE
                self._sink.refusals.number = counted
                raise
            self._health.status.waiting_for = None

        retry(write, self._stop)
        internal_metrics = self._health.internal_metrics
        internal_metrics.add("tallystream.ship.points", len(points))
        internal_metrics.raise_to("tallystream.ship.rejected", self._sink.refusals.number)
        internal_metrics.raise_to("tallystream.ship.unreadable", self._mapper.unreadable)
        internal_metrics.raise_to("tallystream.ship.stale", self._mapper.dropped)

    def _set_up_once(self) -> None:
        if not self._is_set_up:
            self._sink.setup()
            self._is_set_up = True


MAX_POINT_CHARS = 65_536
"""The most characters of a point in its dead letter."""


class RejectedPoints:
    """Sends the dead letters of one store. `kafka` is a librdkafka configuration with bootstrap.servers.

    Delivery: at least once. A batch ends only after its dead letters are acknowledged.
    """

    def __init__(self, topic: str, kafka: Mapping[str, str], store: str) -> None:
        self._topic, self._kafka, self._store = topic, kafka, store
        self._producer: RecordProducer | None = None

    def send(self, points: Iterable[tuple[Point, str]]) -> None:
        """Send points with the reason for each, and return when the broker has acknowledged all of them.

        Raises:
            SinkUnavailableError: the broker did not acknowledge one in time. All must be sent again later.
        """
        letters = [ProducerRecord(self._topic, *dead_letter(point, reason, self._store)) for point, reason in points]
        if not letters:
            return
        if self._producer is None:
            self._producer = RecordProducer(self._kafka)
        try:
            self._producer.deliver(letters)
        except KafkaException as error:
            raise SinkUnavailableError(f"{self._topic}: {error.args[0]}.") from error


def dead_letter(point: Point, reason: str, store: str) -> tuple[bytes, bytes]:
    """Return the key and value of a point's dead letter (docs/topics.md). NaN and infinity are written as by Python.

    The dead letter has no offset: the table accepted the record.
    """
    content = {"measurement": point.measurement, "tags": dict(point.tags), "fields": dict(point.fields)}
    text = json.dumps(content, ensure_ascii=False)[:MAX_POINT_CHARS]
    body = {"v": 1, "reason": reason[:1000], "ts": point.ts_ms, "store": store, "point": text}
    return point.measurement.encode()[:1024], json.dumps(body, ensure_ascii=False).encode()
