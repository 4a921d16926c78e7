"""The loop of `tallystream ship`: read records, write their points to a store, commit the offsets."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Protocol

from confluent_kafka import KafkaException

from tallystream.log_throttle import RateLimitFilter
from tallystream_aggregator.shipping.points import newest
from tallystream_aggregator.shipping.rejected import LettersUnavailableError
from tallystream_aggregator.shipping.retries import StoppedError, retry
from tallystream_aggregator.sinks.base import SinkUnavailableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream.signals import SignalSafeEvent
    from tallystream_aggregator.health import Health
    from tallystream_aggregator.shipping.points import PointMapper
    from tallystream_aggregator.shipping.rejected import RejectedPoints
    from tallystream_aggregator.shipping.subscription import Subscription
    from tallystream_aggregator.sinks.base import Point, Sink
    from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink

log = logging.getLogger(__name__)
log.addFilter(RateLimitFilter())

STORE, BROKERS, GROUP, SUMS = "the store", "the brokers", "the group", "the newest sums"
"""What the shipper waits for, in the health response."""

UNKNOWN = "the newest sums are not known yet"

MAX_RECORDS = 5_000
"""The most records in one write."""

POLL_S = 0.2
"""The longest wait for records in seconds, and so for a stop."""

END_INTERVAL_S, END_TIMEOUT_S = 2.0, 0.5
"""How often the end of a partition is read, and how long a broker may take to answer."""

MAX_AGE_S = 30.0
"""The age in seconds up to which an answer of the brokers is recent: so long are sums shown without another one."""


class Output(Protocol):
    """Where the points go: a store of every point, or one of only the newest."""

    latest: bool

    def begin(self) -> None:
        """Note that the group has decided anew: nothing of what was read before is this shipper's any more."""

    def write(self, points: Sequence[Point]) -> None:
        """Return when the points are written.

        Raises:
            StoppedError: the write was given up. Nothing may be committed.
        """

    def answered(self, now_s: float, end: int) -> None:
        """Note that the brokers said at this time that the partition ends there."""

    def reached(self, position: int, now_s: float) -> str | None:
        """Note the position. Return what the output waits for, None if nothing."""


class Shipper:
    """Ships what a subscription reads. For one thread.

    Delivery: at least once, in the order of each partition. Offsets are committed after the output has the points.
    """

    def __init__(
        self,
        subscription: Subscription,
        mapper: PointMapper,
        output: Output,
        *,
        health: Health,
    ) -> None:
        self._subscription, self._mapper, self._output, self._health = subscription, mapper, output, health
        self._changes = 0
        self._end_due_s = self._answered_s = 0.0

    def step(self) -> bool:
        """Ship the next records, if there are any. Return whether this shipper has partitions and all is well.

        Raises:
            KafkaException: the broker forbids to read, or librdkafka has a fatal error.
            ConfigError: the store rejects the settings.
        """
        subscription, status = self._subscription, self._health.status
        records = subscription.read(MAX_RECORDS, POLL_S)
        now_s = time.monotonic()
        if subscription.changes != self._changes:
            self._changes, self._end_due_s, self._answered_s = subscription.changes, now_s, now_s
            self._output.begin()
            if subscription.places:
                status.run()
            elif subscription.places is None:
                status.waiting_for = GROUP
            else:
                status.stand_by()
                status.waiting_for = None
        if not subscription.places:
            return False
        points = self._mapper.points(newest(records) if self._output.latest else records)
        try:
            self._output.write(points)
        except StoppedError:
            return False
        subscription.done()
        self._count(len(records), len(points))
        return self._check()

    def _check(self) -> bool:
        """Ask for the end of the first partition, and note whether the brokers answer and the output is up to date."""
        place, status = min(self._subscription.places or ()), self._health.status
        now_s = time.monotonic()
        if now_s >= self._end_due_s:
            try:
                self._subscription.check_topics(END_TIMEOUT_S)
                end = self._subscription.end_of(place, END_TIMEOUT_S)
            except KafkaException as error:
                log.warning("topic %s: its end can't be read: %s; trying again", place.topic, error.args[0].str())
                self._end_due_s = time.monotonic() + END_TIMEOUT_S
            else:
                self._end_due_s, self._answered_s = now_s + END_INTERVAL_S, now_s
                self._output.answered(now_s, end)
                status.checked()
        waiting = self._output.reached(self._subscription.position(place), now_s)
        if waiting is None and now_s - self._answered_s > MAX_AGE_S:
            waiting = BROKERS
        status.waiting_for = waiting
        return status.unready_reason() is None

    def _count(self, records: int, points: int) -> None:
        internal_metrics = self._health.internal_metrics
        internal_metrics.add("tallystream.input.records", records)
        internal_metrics.add("tallystream.ship.points", points)
        internal_metrics.raise_to("tallystream.ship.unreadable", self._mapper.unreadable)


class EveryPoint:
    """Writes to a store that keeps every point. While the store is unavailable, it waits and stays in the group.

    Points that the store rejects permanently go to `rejected`.
    """

    latest = False

    def __init__(
        self,
        sink: Sink,
        rejected: RejectedPoints,
        subscription: Subscription,
        *,
        stop: SignalSafeEvent,
        health: Health,
    ) -> None:
        self._sink, self._rejected, self._subscription = sink, rejected, subscription
        self._stop, self._health = stop, health
        self._is_set_up = False
        health.internal_metrics.set_function(
            "tallystream.ship.store_unavailable", lambda: int(health.status.waiting_for == STORE)
        )

    def set_up(self) -> None:
        """Set the store up if it is available, so that wrong settings are reported at once.

        Raises:
            ConfigError: the store rejects the settings.
        """
        try:
            self._set_up_once()
        except SinkUnavailableError as error:
            self._health.status.waiting_for = STORE
            log.warning("%s Points wait on Kafka and are written when it is available.", error)

    def write(self, points: Sequence[Point]) -> None:
        """Write the points; see `Output`.

        Raises:
            StoppedError: while the store was unavailable, a stop was requested, or the group gave the partitions to
                another shipper.
            ConfigError: the store rejects the settings.
        """
        if points or not self._is_set_up:
            changes = self._subscription.changes
            retry(lambda: self._write_once(points), lambda seconds: self._pause(seconds, changes))
            self._health.internal_metrics.raise_to("tallystream.ship.rejected", self._sink.refusals.number)

    def begin(self) -> None:
        """Do nothing: what is written stays."""

    def answered(self, now_s: float, end: int) -> None:
        """Do nothing."""

    def reached(self, position: int, now_s: float) -> str | None:  # noqa: ARG002
        """Return None: what is written is up to date for its position."""
        return None

    def _write_once(self, points: Sequence[Point]) -> None:
        bad: list[tuple[Point, str]] = []  # of this attempt: the next attempt reports and counts them again
        counted = self._sink.refusals.number
        self._sink.refusals.listen = lambda point, reason: bad.append((point, reason))
        try:
            self._set_up_once()
            self._sink.write(points)
            self._sink.flush()
            self._rejected.send(bad)
        except SinkUnavailableError as error:
            is_kafka = isinstance(error, LettersUnavailableError)
            self._health.status.waiting_for = self._rejected.topic if is_kafka else STORE
            self._sink.refusals.number = counted
            raise
        self._health.status.checked()
        self._health.status.waiting_for = None

    def _set_up_once(self) -> None:
        if not self._is_set_up:
            self._sink.setup()
            self._is_set_up = True

    def _pause(self, seconds: float, changes: int) -> bool:
        """Wait, and return whether to give up: the points may be older than what another shipper has written since."""
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0 and not self._stop.is_set():
            self._subscription.wait(min(left_s, POLL_S))
            if self._subscription.changes != changes:
                return True
        return self._stop.is_set()


class NewestPoints:
    """Shows only the newest sums, while they are up to date: after the position has reached a recent end of the topic.

    So an old sum is never shown as the newest. Times are those of a monotonic clock, in seconds.
    """

    latest = True

    def __init__(self, sink: PrometheusSink, *, health: Health) -> None:
        self._sink, self._health = sink, health
        self._ends: list[tuple[float, int]] = []
        self._fresh_s: float | None = None
        self._is_shown = self._is_written = False

    def begin(self) -> None:
        """Withdraw the sums until the end of the topic is reached again."""
        self._ends.clear()
        self._fresh_s = None
        self._is_shown = False
        self._sink.withdraw(UNKNOWN)

    def write(self, points: Sequence[Point]) -> None:
        """Give the points to the sink, which shows them at the next flush."""
        self._sink.write(points)
        self._is_written |= bool(points)
        self._health.internal_metrics.raise_to("tallystream.ship.rejected", self._sink.refusals.number)

    def answered(self, now_s: float, end: int) -> None:
        """Note the end of the topic at a time."""
        self._ends.append((now_s, end))

    def reached(self, position: int, now_s: float) -> str | None:
        """Show the sums, or withdraw them. Return what is waited for."""
        done = [at for at, end in self._ends if end <= position]
        if done:
            self._fresh_s = max(done)
            self._ends = [(at, end) for at, end in self._ends if at > self._fresh_s]
        reason = self._stale(now_s)
        if reason is not None:
            if self._is_shown:
                log.warning("%s; no sums are shown until then", reason)
            self._is_shown = False
            self._sink.withdraw(reason)
            return SUMS
        if self._is_written or not self._is_shown:
            self._sink.flush()
            self._is_shown, self._is_written = True, False
        return None

    def _stale(self, now_s: float) -> str | None:
        """Return why the sums may be out of date, None if they are up to date."""
        if self._fresh_s is None:
            return UNKNOWN
        age_s = now_s - self._fresh_s
        return None if age_s <= MAX_AGE_S else f"the newest sums were last known {age_s:.0f} s ago"
