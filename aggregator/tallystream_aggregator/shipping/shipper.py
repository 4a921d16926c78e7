"""The loop of `tallystream ship`: read records, write their points to a store, commit the offsets."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

from confluent_kafka import KafkaException, TopicPartition

from tallystream.log_throttle import RateLimitFilter
from tallystream_aggregator.shipping.dead_letters import LettersUnavailableError
from tallystream_aggregator.sinks.base import SinkUnavailableError
from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink
from tallystream_aggregator.stream.broker import BrokerError, LostRecordsError, Place
from tallystream_aggregator.stream.kafka.calls import REJECTED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tallystream.process.signals import SignalSafeEvent
    from tallystream_aggregator.health import Health
    from tallystream_aggregator.kafka.lease import Lease
    from tallystream_aggregator.shipping.dead_letters import DeadLetters
    from tallystream_aggregator.shipping.points import PointMapper
    from tallystream_aggregator.shipping.tail import Tail
    from tallystream_aggregator.sinks.base import Point, Sink
    from tallystream_aggregator.stream.broker import Positions

log = logging.getLogger(__name__)
log.addFilter(RateLimitFilter())

STORE, BROKERS, SUMS = "the store", "the brokers", "the newest sums"
"""What the shipper waits for, in the health response."""

MAX_RECORDS = 5_000
"""The most records in one read."""

MAX_POINTS = 5_000
"""The most points in one write. A row of `metrics-table` has many."""

BETWEEN_S = 0.01
"""The pause between two writes of one read, in seconds, in which the group can give the lease to another shipper."""

ASK_INTERVAL_S = 2.0
"""How often the brokers are asked about the topics, in seconds."""

COMMIT_INTERVAL_S = 1.0
"""How often positions are committed, in seconds: so much is read again after a crash."""

POLL_S = 0.2
"""The longest wait for records in seconds, and so for a stop."""

MAX_SILENCE_S = 30.0
"""The seconds without an answer of the brokers after which the shipper is not ready."""


MIN_PAUSE_S, MAX_PAUSE_S = 0.2, 15.0
"""The pause after the first failed write, and the longest one, in seconds."""


class NoLease:
    """For a shipper that starts at the beginning, and works beside others. It is always held, and nothing is committed.

    Its methods are those of `Lease`.
    """

    held, times = True, 1

    def check(self, seconds: float = 0.0) -> None:
        """Wait for some seconds."""
        time.sleep(seconds)

    def committed(self, _: list[TopicPartition]) -> list[TopicPartition]:
        """Return none."""
        return []

    def commit(self, _: list[TopicPartition], *, wait: bool) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Shipper:
    """Ships what a tail reads to a store, while it has the lease. For one thread.

    Delivery: at least once, in the order of each partition. Offsets are committed after the store has acknowledged the
    points, and the broker the dead letters of those that it rejects permanently. While the store is unavailable, the
    shipper waits and keeps the lease. A record that was read before the lease was lost is not written after it, as
    another shipper may have written later ones.

    Prometheus gets only the newest sum of each key in a read, and is told when it has all that there were. It has no
    lease, and no dead letters, which each start would repeat.
    """

    def __init__(
        self,
        lease: Lease | NoLease,
        tail: Tail,
        mapper: PointMapper,
        sink: Sink,
        letters: DeadLetters | None,
        *,
        stop: SignalSafeEvent,
        health: Health,
    ) -> None:
        self._lease, self._tail, self._mapper, self._sink, self._letters = lease, tail, mapper, sink, letters
        tail.restarted = self._set_back
        self._latest = sink if isinstance(sink, PrometheusSink) else None
        self._stop, self._health = stop, health
        self._times = 0
        self._ask_due_s = self._answered_s = self._commit_due_s = 0.0
        self._ends: Positions = {}
        self._written: Positions = {}
        self._committed: Positions = {}
        self._is_set_up = False
        health.internal_metrics.set_function(
            "tallystream.ship.store_unavailable", lambda: int(health.status.waiting_for == STORE)
        )
        self._note(0, 0, 0)

    def step(self) -> bool:
        """Ship the next records, if there are any. Return whether this shipper has the lease and all is well.

        Raises:
            KafkaException: the broker forbids it, or librdkafka has a fatal error.
            RejectedError: the broker forbids to read.
            ConfigError: the store rejects the settings.
        """
        self._lease.check()
        if not self._lease.held:
            self._health.status.stand_by()
            self._health.status.waiting_for = None
            self._lease.check(POLL_S)
            return False
        try:
            self._ask()
            records = self._tail.read(MAX_RECORDS, POLL_S)
        except (BrokerError, LostRecordsError, KafkaException) as error:
            if isinstance(error, KafkaException) and error.args[0].code() in REJECTED:
                raise
            log.warning("%s; trying again", error)
            self._ask_due_s = 0.0
            self._lease.check(POLL_S)
            return self._is_ready()
        points = self._mapper.points(records) if self._latest is None else self._mapper.newest(records)
        rejected = self._write(points) if points or not self._is_set_up else 0
        if rejected is None:
            return False
        self._written = self._tail.positions
        if self._latest is not None and all(self._written[place] >= end for place, end in self._ends.items()):
            self._latest.caught_up(self._answered_s)
        if self._written != self._committed and time.monotonic() >= self._commit_due_s:
            self._commit(self._written, wait=False)
        if records:
            self._note(len(records), len(points), rejected)
        return self._is_ready()

    def close(self) -> None:
        """Commit what is written, and release the lease."""
        if self._lease.held and self._written != self._committed:
            with suppress(KafkaException):  # it is read again
                self._commit(self._written, wait=True)
        self._tail.close()
        self._lease.close()

    def _commit(self, positions: Positions, *, wait: bool) -> None:
        self._lease.commit([TopicPartition(*place, at) for place, at in positions.items()], wait=wait)
        self._commit_due_s, self._committed = time.monotonic() + COMMIT_INTERVAL_S, dict(positions)

    def _set_back(self, positions: Positions) -> None:
        """Commit the beginnings of topics that were created again: an offset of the old one may be committed."""
        if self._latest is not None:
            self._latest.clear()
        if positions.keys() & self._tail.positions.keys():
            self._commit(positions, wait=True)

    def _ask(self) -> None:
        """Ask the brokers about the topics, every `ASK_INTERVAL_S`, and about the group's offsets with a new lease."""
        now_s, status = time.monotonic(), self._health.status
        if self._lease.times != self._times:
            status.run()
            self._answered_s, self._ask_due_s = now_s, now_s
            found = self._lease.committed([TopicPartition(*place) for place in self._tail.places()])
            self._committed = {Place(one.topic, one.partition): one.offset for one in found}
            self._written = self._committed
            self._tail.begin(self._committed)
            self._times = self._lease.times
        if now_s >= self._ask_due_s:
            self._ends = {place: found.stable for place, found in self._tail.ask().items()}
            self._answered_s, self._ask_due_s = now_s, now_s + ASK_INTERVAL_S
            status.waiting_for = self._awaited()
            status.checked()

    def _note(self, records: int, points: int, rejected: int) -> None:
        """Count the records and points of a read, and what could not be shipped."""
        metrics = self._health.internal_metrics
        metrics.add("tallystream.input.records", records)
        metrics.add("tallystream.ship.points", points)
        metrics.add("tallystream.ship.rejected", rejected)
        metrics.raise_to("tallystream.ship.unreadable", self._mapper.unreadable)

    def _is_ready(self) -> bool:
        self._health.status.waiting_for = self._awaited()
        return self._health.status.unready_reason() is None

    def _awaited(self) -> str | None:
        """Return what the shipper waits for while no write fails."""
        if self._latest is not None and self._latest.stale_reason() is not None:
            return SUMS
        return BROKERS if time.monotonic() - self._answered_s > MAX_SILENCE_S else None

    def _write(self, points: Sequence[Point]) -> int | None:
        """Write the points, in order. Return how many the store rejects, None if nothing may be committed.

        Raises:
            ConfigError: the store rejects the settings.
        """
        rejected = 0
        for at in range(0, max(len(points), 1), MAX_POINTS):
            if at:
                self._lease.check(BETWEEN_S)
            gives_up = at > 0 and self._gives_up()
            found = None if gives_up else self._write_when_available(points[at : at + MAX_POINTS])
            if found is None:
                return None
            rejected += found
        return rejected

    def _write_when_available(self, points: Sequence[Point]) -> int | None:
        """Write points, again and again until the store is available. Return how many it rejects, None to give up.

        The pauses double, and are at least as long as the store requests.
        """
        status = self._health.status
        for attempt in count(1):
            try:
                if not self._is_set_up:
                    self._sink.setup()
                    self._is_set_up = True
                rejected = self._sink.write(points)
                if self._letters is not None:
                    self._letters.send(rejected)
            except SinkUnavailableError as error:
                status.waiting_for = error.topic if isinstance(error, LettersUnavailableError) else STORE
                if attempt == 1:
                    log.warning("%s Points wait on Kafka and are written when it is available again.", error)
                pause_s = min(MAX_PAUSE_S, MIN_PAUSE_S * 2.0 ** min(attempt - 1, 30))
                if self._pause(max(error.retry_after_s, pause_s)):
                    break
            else:
                if attempt > 1:
                    log.info("available again after %d attempts", attempt)
                status.checked()
                status.waiting_for = self._awaited()
                return len(rejected)
        return None

    def _pause(self, seconds: float) -> bool:
        """Wait, and return whether to give up."""
        until = time.monotonic() + seconds
        while (left_s := until - time.monotonic()) > 0 and not self._gives_up():
            self._lease.check(min(left_s, POLL_S))
        return self._gives_up()

    def _gives_up(self) -> bool:
        """Return whether a write must end: the points may be older than what another shipper has written since."""
        return self._stop.is_set() or not self._lease.held or self._lease.times != self._times
