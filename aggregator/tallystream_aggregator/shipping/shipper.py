"""The loop of `tallystream ship`: read records, write their points to a store, commit the offsets."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from tallystream_aggregator.shipping.rejected import LettersUnavailableError
from tallystream_aggregator.shipping.retries import StoppedError, retry
from tallystream_aggregator.sinks.base import SinkUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tallystream.process.signals import SignalSafeEvent
    from tallystream_aggregator.health import Health
    from tallystream_aggregator.health.internal_metrics import InternalMetrics
    from tallystream_aggregator.shipping.points import PointMapper
    from tallystream_aggregator.shipping.rejected import RejectedPoints
    from tallystream_aggregator.shipping.subscription import Subscription
    from tallystream_aggregator.sinks.base import Point, Sink

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


def count(metrics: InternalMetrics, records: int, points: int, mapper: PointMapper, sink: Sink) -> None:
    """Count the records and points of a read, and what could not be shipped so far."""
    metrics.add("tallystream.input.records", records)
    metrics.add("tallystream.ship.points", points)
    metrics.raise_to("tallystream.ship.unreadable", mapper.unreadable)
    metrics.raise_to("tallystream.ship.rejected", sink.refusals.number)


class Shipper:
    """Ships what a subscription reads to a store of every point. For one thread.

    Delivery: at least once, in the order of each partition. Offsets are committed after the store has acknowledged the
    points, and `rejected` has those that it rejects permanently. While the store is unavailable, the shipper waits and
    stays in the group.
    """

    def __init__(
        self,
        subscription: Subscription,
        mapper: PointMapper,
        sink: Sink,
        rejected: RejectedPoints,
        *,
        stop: SignalSafeEvent,
        health: Health,
    ) -> None:
        self._subscription, self._mapper, self._sink, self._rejected = subscription, mapper, sink, rejected
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
        try:
            self._write(points)
        except StoppedError:
            return False
        self._subscription.written()
        count(self._health.internal_metrics, len(records), len(points), self._mapper, self._sink)
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

    def _write(self, points: Sequence[Point]) -> None:
        """Write the points, in order.

        Raises:
            StoppedError: a stop was requested, or the group gave the partitions to another shipper. Nothing may be
                committed.
            ConfigError: the store rejects the settings.
        """
        if not self._is_set_up:
            self._retry(self._set_up_once)
        for at in range(0, len(points), MAX_POINTS):
            if at:
                self._subscription.wait(BETWEEN_S)
                if self._gives_up():
                    raise StoppedError
            self._retry(partial(self._write_once, points[at : at + MAX_POINTS]))

    def _retry(self, write: Callable[[], None]) -> None:
        """Call `write` until the store is available, and note what is waited for."""
        status = self._health.status

        def attempt() -> None:
            try:
                write()
            except SinkUnavailableError as error:
                is_kafka = isinstance(error, LettersUnavailableError)
                status.waiting_for = self._rejected.topic if is_kafka else STORE
                raise
            status.checked()
            status.waiting_for = None

        retry(attempt, self._pause)

    def _write_once(self, points: Sequence[Point]) -> None:
        bad: list[tuple[Point, str]] = []  # of this attempt: the next attempt reports and counts them again
        refusals = self._sink.refusals
        counted, refusals.listen = refusals.number, lambda point, reason: bad.append((point, reason))
        try:
            self._sink.write(points)
            self._rejected.send(bad)
        except SinkUnavailableError:
            refusals.number = counted
            raise

    def _set_up_once(self) -> None:
        self._sink.setup()
        self._is_set_up = True

    def _pause(self, seconds: float) -> bool:
        """Wait, and return whether to give up."""
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0 and not self._gives_up():
            self._subscription.wait(min(left_s, POLL_S))
        return self._gives_up()

    def _gives_up(self) -> bool:
        """Return whether a write must end: the points may be older than what another shipper has written since."""
        return self._stop.is_set() or self._subscription.changes != self._changes
