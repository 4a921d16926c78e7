"""The loop of `tallystream ship`: read records, write their points to a store, commit the offsets."""

from __future__ import annotations

import logging
import random
import time
from itertools import count
from typing import TYPE_CHECKING

from tallystream_aggregator.shipping.dead_letters import LettersUnavailableError
from tallystream_aggregator.sinks.base import SinkUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream.process.signals import SignalSafeEvent
    from tallystream_aggregator.health import Health
    from tallystream_aggregator.health.internal_metrics import InternalMetrics
    from tallystream_aggregator.shipping.dead_letters import DeadLetters
    from tallystream_aggregator.shipping.points import PointMapper
    from tallystream_aggregator.shipping.subscription import Subscription
    from tallystream_aggregator.sinks.base import Point, Sink

log = logging.getLogger(__name__)

STORE, BROKERS, GROUP = "the store", "the brokers", "the group"
"""What the shipper waits for, in the health response."""

MAX_RECORDS = 5_000
"""The most records in one read."""

MAX_POINTS = 5_000
"""The most points in one write. A row of `metrics-table` has many."""

BETWEEN_S = 0.01
"""The pause between two writes of one read, in seconds, in which the group can say that it gave the partitions away."""

POLL_S = 0.2
"""The longest wait for records in seconds, and so for a stop."""

MAX_SILENCE_S = 30.0
"""The seconds without an answer of the brokers after which the shipper is not ready."""


MIN_PAUSE_S, MAX_PAUSE_S = 0.2, 15.0
"""The pause after the first failed write, and the longest one, in seconds."""


def note(metrics: InternalMetrics, records: int, points: int, mapper: PointMapper, rejected: int) -> None:
    """Count the records and points of a read, and what could not be shipped."""
    metrics.add("tallystream.input.records", records)
    metrics.add("tallystream.ship.points", points)
    metrics.raise_to("tallystream.ship.unreadable", mapper.unreadable)
    metrics.add("tallystream.ship.rejected", rejected)


class Shipper:
    """Ships what a subscription reads to a store of every point. For one thread.

    Delivery: at least once, in the order of each partition. Offsets are committed after the store has acknowledged the
    points, and the broker the dead letters of those that it rejects permanently. While the store is unavailable, the
    shipper waits and stays in the group.
    """

    def __init__(
        self,
        subscription: Subscription,
        mapper: PointMapper,
        sink: Sink,
        letters: DeadLetters,
        *,
        stop: SignalSafeEvent,
        health: Health,
    ) -> None:
        self._subscription, self._mapper, self._sink, self._letters = subscription, mapper, sink, letters
        self._stop, self._health = stop, health
        self._changes = 0
        self._is_set_up = False
        health.internal_metrics.set_function(
            "tallystream.ship.store_unavailable", lambda: int(health.status.waiting_for == STORE)
        )

    def step(self) -> bool:
        """Ship the next records, if there are any. Return whether this shipper has partitions and all is well.

        Raises:
            KafkaException: the broker forbids to read, or librdkafka has a fatal error.
            ConfigError: the store rejects the settings.
        """
        records = self._subscription.read(MAX_RECORDS, POLL_S)
        if not self._has_partitions():
            return False
        points = self._mapper.points(records)
        rejected = self._write(points) if points or not self._is_set_up else 0
        if rejected is None:
            return False
        self._subscription.written()
        note(self._health.internal_metrics, len(records), len(points), self._mapper, rejected)
        return self._is_ready()

    def _has_partitions(self) -> bool:
        """Return whether this shipper works. Note what the group has decided."""
        subscription, status = self._subscription, self._health.status
        if subscription.changes != self._changes:
            self._changes = subscription.changes
            if subscription.places:
                status.run()
            elif subscription.places is None:
                status.waiting_for = GROUP
            else:
                status.stand_by()
                status.waiting_for = None
        return bool(subscription.places)

    def _is_ready(self) -> bool:
        status = self._health.status
        if self._subscription.ask():
            status.checked()
        silence_s = time.monotonic() - self._subscription.answered_s
        status.waiting_for = BROKERS if silence_s > MAX_SILENCE_S else None
        return status.unready_reason() is None

    def _write(self, points: Sequence[Point]) -> int | None:
        """Write the points, in order. Return how many the store rejects, None if nothing may be committed.

        Raises:
            ConfigError: the store rejects the settings.
        """
        rejected = self._write_when_available(points[:MAX_POINTS])
        for at in range(MAX_POINTS, len(points), MAX_POINTS):
            self._subscription.wait(BETWEEN_S)
            if rejected is None or self._gives_up():
                return None
            more = self._write_when_available(points[at : at + MAX_POINTS])
            rejected = None if more is None else rejected + more
        return rejected

    def _write_when_available(self, points: Sequence[Point]) -> int | None:
        """Write points, again and again until the store is available. Return how many it rejects, None to give up.

        The pauses double, with jitter in their upper half, and are at least as long as the store requests. Source:
        "Exponential Backoff And Jitter", AWS Architecture Blog, 2015 (equal jitter).
        """
        status = self._health.status
        for attempt in count(1):
            try:
                if not self._is_set_up:
                    self._sink.setup()
                    self._is_set_up = True
                rejected = self._sink.write(points)
                self._letters.send(rejected)
            except SinkUnavailableError as error:
                is_kafka = isinstance(error, LettersUnavailableError)
                status.waiting_for = self._letters.topic if is_kafka else STORE
                if attempt == 1:
                    log.warning("%s Points wait on Kafka and are written when it is available again.", error)
                longest_s = min(MAX_PAUSE_S, MIN_PAUSE_S * 2.0 ** min(attempt - 1, 30))
                if self._pause(max(error.retry_after_s, random.uniform(longest_s / 2, longest_s))):
                    break
            else:
                if attempt > 1:
                    log.info("available again after %d attempts", attempt)
                status.checked()
                status.waiting_for = None
                return len(rejected)
        return None

    def _pause(self, seconds: float) -> bool:
        """Wait, and return whether to give up."""
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0 and not self._gives_up():
            self._subscription.wait(min(left_s, POLL_S))
        return self._gives_up()

    def _gives_up(self) -> bool:
        """Return whether a write must end: the points may be older than what another shipper has written since."""
        return self._stop.is_set() or self._subscription.changes != self._changes
