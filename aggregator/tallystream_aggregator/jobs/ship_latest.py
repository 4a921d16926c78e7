"""`tallystream ship` to a store of only the newest sums: a consumer reads `metrics-agg` from its beginning, no Spark.

Such a store loses everything at a restart, so a checkpoint would be of no use. The compacted topic has the newest sum
of every metric.
"""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

from tallystream.clock import SYSTEM_CLOCK, Clock
from tallystream.errors import ConfigError, TallystreamError
from tallystream_aggregator.health import Health, HealthSettings
from tallystream_aggregator.kafka import clients
from tallystream_aggregator.kafka.auth import check_login
from tallystream_aggregator.kafka.groups import GroupCommitter
from tallystream_aggregator.kafka.ledger import epochs_of
from tallystream_aggregator.kafka.partition_bounds import bounds_of
from tallystream_aggregator.kafka.reader import Read
from tallystream_aggregator.kafka.topics import Topics, create_topics
from tallystream_aggregator.shipping.latest import Freshness, LatestSums
from tallystream_aggregator.shutdown import StopRequest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from confluent_kafka import Consumer

    from tallystream_aggregator.sinks.base import Point
    from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink

log = logging.getLogger(__name__)

CHUNK = 10_000
CHUNK_S = 0.2
POLL_INTERVAL_S = 2.0
"""The interval in seconds at which the end of the topic is read."""
MAX_WAIT_S = 30.0
"""How long sums are shown while the end of the topic can't be read, in seconds."""


@dataclass(frozen=True, slots=True)
class ShipLatestSettings:
    """Settings of `tallystream ship` for a store of only the newest sums. `kafka` are librdkafka options.

    `ready_file` is created when the newest sums are shown for the first time. The topic prefix comes before `group`.
    """

    bootstrap_servers: str
    topic_prefix: str = ""
    group: str = "tallystream-shipper"
    kafka: Mapping[str, str] = field(default_factory=dict, repr=False)
    health: HealthSettings = field(default_factory=HealthSettings)
    ready_file: Path | None = None
    max_wait_s: float = MAX_WAIT_S

    def __post_init__(self) -> None:
        if not self.bootstrap_servers:
            raise ConfigError("--bootstrap-servers", self.bootstrap_servers, "name a broker, as in localhost:9092")


class Place(NamedTuple):
    """The partition that a consumer reads, and the committer of its offsets."""

    consumer: Consumer
    topic: str
    partition: int
    committer: GroupCommitter


class LatestShipper:
    """Reads one partition into the sink, which shows the sums while they are up to date. For one thread."""

    def __init__(
        self,
        place: Place,
        sink: PrometheusSink,
        health: Health,
        newest: LatestSums,
        freshness: Freshness,
        *,
        clock: Clock,
    ) -> None:
        self._place, self._sink, self._health = place, sink, health
        self._freshness, self._clock = freshness, clock
        self._latest = newest
        self._waiting: list[Read] = []
        self._consumed = self._position = -1
        self._polled_s = -POLL_INTERVAL_S
        self._counted: dict[str, int] = {}
        self.shown = False

    def step(self) -> None:
        """Read the next records, and show the sums, or withdraw them if they may be out of date.

        Raises:
            KafkaException: the broker rejects the consumer permanently.
        """
        points = self._points()
        self._sink.write(points)
        self._poll()
        self._freshness.reached(self._position)
        self._show(written=bool(points))
        self._health.status.checked()
        self._health.internal_metrics.add("tallystream.ship.points", len(points))
        for name, total in (
            ("rejected", self._sink.rejected),
            ("unreadable", self._latest.unreadable),
            ("stale", self._latest.dropped),
        ):
            self._health.internal_metrics.add(f"tallystream.ship.{name}", total - self._counted.get(name, 0))
            self._counted[name] = total

    def _points(self) -> list[Point]:
        """Return the points of the next records, none while the ledger can't be read."""
        if not self._waiting:
            self._consume()
        try:
            points = self._latest.points(self._waiting)
        except (KafkaException, TallystreamError) as error:
            log.warning("the ledger can't be read: %s; it is tried again", error)
            time.sleep(CHUNK_S)
            return []
        self._waiting.clear()
        self._position = self._consumed
        return points

    def _consume(self) -> None:
        for message in self._place.consumer.consume(CHUNK, timeout=CHUNK_S):
            error = message.error()
            if error is None:
                self._waiting.append(Read(message.key(), message.value(), message.offset() or 0))
                self._consumed = self._waiting[-1].offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (librdkafka's name for it)
                self._consumed = max(self._consumed, message.offset() or 0)
            elif error.fatal():
                raise KafkaException(error)
            else:
                log.warning("%s: %s; it is tried again", self._place.topic, error)

    def _poll(self) -> None:
        now_s = self._clock.monotonic()
        if now_s - self._polled_s < POLL_INTERVAL_S:
            return
        self._polled_s = now_s
        at = TopicPartition(self._place.topic, self._place.partition)
        try:
            _, end = bounds_of(self._place.consumer, at, timeout=5)
            self._freshness.ended(now_s, end)
            if self.shown:
                self._place.committer.commit({at.topic: {str(at.partition): self._position}})
        except KafkaException as error:
            log.warning("%s: %s; it is tried again", self._place.topic, error)

    def _show(self, *, written: bool) -> None:
        reason = self._freshness.stale(self._clock.monotonic())
        waited = self._health.status.waiting_for is not None
        if reason is not None:
            if self.shown and not waited:
                log.warning("%s: %s; no sums are shown until then", self._place.topic, reason)
            self._health.status.waiting_for = "the newest sums"
            self._sink.withdraw(reason)
        elif written or waited or not self.shown:
            self._health.status.waiting_for = None
            self._sink.flush()
            self.shown = True


def run(settings: ShipLatestSettings, sink: PrometheusSink, *, clock: Clock = SYSTEM_CLOCK) -> int:
    """Show the newest sums until SIGTERM or SIGINT, then return 0.

    Delivery: only the newest sums. No sum is shown before the end of the topic was reached, or while that end could not
    be read for `max_wait_s`. So an old sum is never shown as the newest.

    Raises:
        ConfigError: a setting can't be used, or the sink can't listen on its address.
        TallystreamError: the broker can't be reached, or rejects a request.
    """
    stop = StopRequest().install()
    topics = Topics(settings.topic_prefix)
    kafka: dict[str, Any] = {**settings.kafka, "bootstrap.servers": settings.bootstrap_servers}
    group = settings.topic_prefix + settings.group
    with ExitStack() as stack:
        health = stack.enter_context(Health("ship", settings.health))
        stack.callback(sink.close)
        sink.setup()
        try:
            check_login(kafka)
            create_topics(clients.admin(kafka), topics)
            committer = GroupCommitter(settings.bootstrap_servers, group, settings.kafka)
            stack.callback(committer.close)
            consumer = clients.consumer(
                {**kafka, "group.id": group, "enable.auto.commit": False, "enable.partition.eof": True}
            )
            stack.callback(consumer.close)
            consumer.assign([TopicPartition(topics.agg, 0, OFFSET_BEGINNING)])
            health.report(settings.bootstrap_servers, topics.metrics, settings.kafka)
            health.status.run()
            place = Place(consumer, topics.agg, 0, committer)
            latest = LatestSums(epochs_of(topics.ledger, kafka, timeout=5))
            shipper = LatestShipper(place, sink, health, latest, Freshness(settings.max_wait_s), clock=clock)
            while not stop.is_set():
                shipper.step()
                if shipper.shown and settings.ready_file is not None:
                    settings.ready_file.touch()
        except KafkaException as error:
            raise clients.failed(settings.bootstrap_servers, error) from error
    return 0
