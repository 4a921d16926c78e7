"""Shows the newest sums: reads `metrics-agg` from its beginning, and knows whether its sums are up to date."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import msgspec
from confluent_kafka import KafkaError, KafkaException

from tallystream.errors import TallystreamError
from tallystream_aggregator import sums
from tallystream_aggregator.kafka.partition_bounds import bounds_of
from tallystream_aggregator.kafka.reader import Read
from tallystream_aggregator.shipping.points import point

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Consumer, TopicPartition

    from tallystream_aggregator.health import Health
    from tallystream_aggregator.kafka.groups import GroupCommitter
    from tallystream_aggregator.kafka.ledger import Epochs
    from tallystream_aggregator.sinks.base import Point
    from tallystream_aggregator.sinks.prometheus.sink import PrometheusSink

log = logging.getLogger(__name__)

CHUNK, CHUNK_S = 10_000, 0.2
"""The most records that are read at a time, and the longest wait for them in seconds."""

POLL_INTERVAL_S = 2.0
"""The interval in seconds at which the end of the topic is read."""

MAX_AGE_S = 30.0
"""The age in seconds up to which an end of the topic is recent: so long are sums shown while it can't be read."""


class LatestSums:
    """Turns the topic's records, in order, into points: the last row of every key in each chunk.

    Rows of replaced writers, and of epochs that no writer has taken, are skipped, and so is a row after one of a later
    batch with its key; `dropped` counts them. `unreadable` counts records that are not sums.
    """

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._epoch = 0
        self._batches: dict[bytes | None, int] = {}
        self.dropped = 0
        self.unreadable = 0

    def points(self, records: Iterable[Read]) -> list[Point]:
        """Return the points of the next records.

        Raises what `epochs` raises if the ledger can't be read. Then call it with the same records again.
        """
        rows: list[tuple[bytes | None, sums.Sum]] = []
        unreadable: list[tuple[int, str]] = []
        for record in records:
            try:
                rows.append((record.key, sums.decode(record.value or b"")))
            except msgspec.DecodeError as error:
                unreadable.append((record.offset, str(error)))
        bound = self._epochs.bound(row.epoch for _, row in rows)
        last: dict[bytes | None, sums.Sum] = {}
        for key, row in rows:
            if not self._epoch <= row.epoch <= max(bound, self._epoch):
                self.dropped += 1
                continue
            if row.epoch > self._epoch:
                self._epoch = row.epoch
                self._batches.clear()
            # By key: a row that no aggregator wrote, of a batch that is yet to come, must not hide the other sums.
            if row.batch < self._batches.get(key, 0):
                self.dropped += 1
                continue
            self._batches[key] = row.batch
            last[key] = row
        for offset, reason in unreadable:
            log.warning("offset %d of the topic is not a sum and is not shown: %s", offset, reason)
        self.unreadable += len(unreadable)
        return [point(row) for row in last.values()]


class Freshness:
    """Tells whether the sums that were read are up to date: the position has reached a recent end of the topic.

    Times are those of a monotonic clock, in seconds.
    """

    def __init__(self) -> None:
        self._asked: list[tuple[float, int]] = []
        self._fresh_s: float | None = None

    def ended(self, now_s: float, end: int) -> None:
        """Record the end of the topic at a time."""
        self._asked.append((now_s, end))

    def reached(self, position: int) -> None:
        """Record the position: the next offset to read."""
        done = [at for at, end in self._asked if end <= position]
        if done:
            self._fresh_s = max(done)
            self._asked = [(at, end) for at, end in self._asked if at > self._fresh_s]

    def stale(self, now_s: float) -> str | None:
        """Return why the sums may be out of date, None if they are up to date."""
        if self._fresh_s is None:
            return "the newest sums are not known yet"
        age_s = now_s - self._fresh_s
        return None if age_s <= MAX_AGE_S else f"the newest sums were last known {age_s:.0f} s ago"


class LatestShipper:
    """Reads one partition into the sink, which shows the sums while they are up to date. For one thread.

    `consumer` is assigned to `partition` from its beginning. `committer` commits its position for lag tools.
    """

    def __init__(
        self,
        consumer: Consumer,
        partition: TopicPartition,
        committer: GroupCommitter,
        sink: PrometheusSink,
        latest: LatestSums,
        *,
        health: Health,
    ) -> None:
        self._consumer, self._partition, self._committer = consumer, partition, committer
        self._sink, self._latest, self._health = sink, latest, health
        self._freshness = Freshness()
        self._waiting: list[Read] = []
        self._consumed = self._position = -1
        self._polled_s = -POLL_INTERVAL_S
        self.shown = False

    def step(self) -> None:
        """Read the next records, and show the sums, or withdraw them if they may be out of date.

        Raises:
            KafkaException: the broker rejects the consumer permanently.
        """
        points = self._points()
        self._sink.write(points)
        self._poll_end()
        self._freshness.reached(self._position)
        self._show(written=bool(points))
        self._health.status.checked()
        internal_metrics = self._health.internal_metrics
        internal_metrics.add("tallystream.ship.points", len(points))
        internal_metrics.raise_to("tallystream.ship.rejected", self._sink.refusals.number)
        internal_metrics.raise_to("tallystream.ship.unreadable", self._latest.unreadable)
        internal_metrics.raise_to("tallystream.ship.stale", self._latest.dropped)

    def _points(self) -> list[Point]:
        """Return the points of the next records, none while the ledger can't be read."""
        if not self._waiting:
            self._consume()
        try:
            points = self._latest.points(self._waiting)
        except (KafkaException, TallystreamError) as error:
            log.warning("the ledger can't be read: %s; trying again", error)
            time.sleep(CHUNK_S)
            return []
        self._waiting.clear()
        self._position = self._consumed
        return points

    def _consume(self) -> None:
        for message in self._consumer.consume(CHUNK, timeout=CHUNK_S):
            error = message.error()
            if error is None:
                self._waiting.append(Read(message.key(), message.value(), message.offset() or 0))
                self._consumed = self._waiting[-1].offset + 1
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 (librdkafka's name for it)
                self._consumed = max(self._consumed, message.offset() or 0)
            elif error.fatal():
                raise KafkaException(error)
            else:
                log.warning("%s: %s; trying again", self._partition.topic, error)

    def _poll_end(self) -> None:
        """Read the end of the topic, and commit the position, every `POLL_INTERVAL_S`."""
        now_s = time.monotonic()
        if now_s - self._polled_s < POLL_INTERVAL_S:
            return
        self._polled_s = now_s
        try:
            _, end = bounds_of(self._consumer, self._partition, timeout=5)
            self._freshness.ended(now_s, end)
            if self.shown:
                self._committer.commit({self._partition.topic: {str(self._partition.partition): self._position}})
        except KafkaException as error:
            log.warning("%s: %s; trying again", self._partition.topic, error)

    def _show(self, *, written: bool) -> None:
        reason = self._freshness.stale(time.monotonic())
        waited = self._health.status.waiting_for is not None
        if reason is not None:
            if self.shown and not waited:
                log.warning("%s: %s; no sums are shown until then", self._partition.topic, reason)
            self._health.status.waiting_for = "the newest sums"
            self._sink.withdraw(reason)
        elif written or waited or not self.shown:
            self._health.status.waiting_for = None
            self._sink.flush()
            self.shown = True
